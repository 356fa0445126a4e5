"""Log files in object storage: found, opened and read by the engine through fsspec, much as files on a disk."""
