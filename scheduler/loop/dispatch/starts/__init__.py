"""Give pods what they need to start: image, spec, secrets, ports and addresses."""
