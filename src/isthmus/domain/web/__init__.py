"""What the web page sends to whom, as plain values: tables and their changes, who may see what, and what was."""
