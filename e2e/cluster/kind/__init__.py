"""The cluster driver `kind`: the two nodes that users and their CI have, as a second check beside the local driver.

Where a Docker daemon answers and the stock node image can be had, everything is as on a user's machine. Elsewhere
`kind create cluster` runs just the same, on a Docker daemon of our own (`daemon`) with a node image built here
(`nodeimage`).
"""
