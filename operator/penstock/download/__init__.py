"""Brings a model from a hub into a volume, once, whole and checked, before the engine of the same pod starts.

All replicas that share a claim run this at the same time. One of them holds the lock and downloads, the others wait and
find the finished folder. Whatever ends the download, the next one goes on where it stopped; the folder that the engine
reads appears by one rename, when every file in it has the size and the checksum that the hub names.
"""
