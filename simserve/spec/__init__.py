"""What the user writes: scenario, model, GPU profile. Read, checked and resolved into frozen specifications."""
