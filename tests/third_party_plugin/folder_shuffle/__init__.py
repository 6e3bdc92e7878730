"""A shuffle whose map outputs are files of a directory that all tasks can reach."""

from folder_shuffle.plugin import FolderShuffle

__all__ = ["FolderShuffle"]
