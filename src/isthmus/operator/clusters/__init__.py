"""SlurmClusters: each becomes the parts that the other reconcilers look after."""
