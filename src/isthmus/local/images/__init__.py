"""Images and root file systems of the local cluster, made from Debian packages: see `docs/images.md`."""
