"""Kubernetes over HTTP: a client, change streams and caches. Knows nothing of Slurm or of our own kinds.

config     where the API server is and how to trust it: kubeconfig files, or the pod we run in
auth, tls  who we are, how that is renewed, and whom we believe
transport  connections, time-outs, bounded parallelism, waiting when told to
errors     what the server answers, as what the caller does next
client     verbs, subresources, server-side apply
watch      one watch request as a stream of batches
informer   list and watch forever, into a store
store      objects by key and by index, read without awaiting
recorder   Events that aggregate
crd        custom resource definitions from structs (their schemas: structural)
stream     logs and exec in pods
"""
