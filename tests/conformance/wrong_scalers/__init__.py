"""Scalers with one known defect each. The suite must reject each in every section that its `sections` names.

A suite that lets one pass checks too little.
"""
