"""Failures get a name from their evidence, and an action from one versioned table."""

from flashruntime.recovery.classify import classify
from flashruntime.recovery.policy import POLICY_VERSION, decide

__all__ = ["POLICY_VERSION", "classify", "decide"]
