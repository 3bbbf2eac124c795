"""Jobs, pods and nodes of both worlds as people see them, on the page and in a terminal; why something waits."""
