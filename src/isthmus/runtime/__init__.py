"""The machinery around decisions, the same for every process of ours.

    backlog     which key comes next: order, duplicates, delays (pure)
    queue       hands keys to workers, and spaces out those that fail
    controller  workers around one reconcile function
    candidate   who may lead (pure)
    election    leadership by a Lease, and the leader's work
    fuse        ends a process that would lead for too long
    manager     what a process starts, when it is ready, how it ends
    server      health, metrics and webhooks over HTTP
    reviews     what the API server asks webhooks, as typed functions
    health      named checks
    certs       an authority and serving certificates, and when each is renewed (pure)
    certkeeper  keeps them in a Secret, shows them, and has them trusted
    trust       tells the API server whom to trust
    metrics     what a process counts
    logs        text for people, JSON for machines, no secrets
    loop        starts the event loop

`docs/building-on-isthmus.md` shows most of them at work in forty lines.
"""
