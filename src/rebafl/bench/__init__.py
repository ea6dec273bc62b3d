"""How fast is it, compared with other simulators? Each does the same work, in turn, on the same machine."""
