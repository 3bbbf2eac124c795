"""Node health: finds bad nodes, drains and repairs them within limits, and tests them before they return."""
