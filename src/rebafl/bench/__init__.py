"""How fast is it, beside what one would use instead? The same work through each, in one run."""
