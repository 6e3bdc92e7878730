"""Programs that write docs and deploy files, and the demo on real input."""
