"""How time passes on a replica: in steps and in closed form (`steps`), kernel by kernel (`kernels`), through pipeline
stages (`stages`), or in lockstep with the ranks that share its experts (`ranks`).
"""
