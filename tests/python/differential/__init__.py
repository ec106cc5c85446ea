"""Random programs run on two scalers in lock-step; see program.py, world.py and snapshot.py."""
