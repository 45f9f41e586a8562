"""How replicas, servers and rings are wired together: one mechanism a file."""
