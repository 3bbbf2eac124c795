"""The door of the bridge: webhooks that hand new pods to Slurm, and turn away what Slurm could not do."""
