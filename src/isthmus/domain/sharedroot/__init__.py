"""What becomes of the shared root, decided from plain values.

entry      one path as it is somewhere: in an image, in the root, in the manifest
known      what earlier runs say that they wrote
deciding   what is done with one path
planning   what is done with all of them, and how it is told
checking   how the root differs from what we put there
accounts   users of the root and users of the image, in one file
fitness    whether a tree is an image that jobs can live in
space      whether there is room
"""
