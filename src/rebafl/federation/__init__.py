"""How does a run go over real machines? `app` is what Flower runs on them, `ops` starts and watches the processes."""
