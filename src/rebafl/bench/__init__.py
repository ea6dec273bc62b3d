"""How fast is it, compared with other simulators? Each does the same work, in turns, on the same machine."""
