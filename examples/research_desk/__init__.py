"""The example: an Assistant with sub-agents that research, plan and import what is installed on this machine."""

from collections.abc import Mapping

from examples.research_desk.agents import Assistant, Importer, Planner, Researcher
from examples.research_desk.offline_model import OfflineModel
from turnkeeper.models import CustomModel

__all__ = ["Assistant", "Importer", "Planner", "Researcher", "custom_models"]

custom_models: Mapping[str, CustomModel] = {"offline": OfflineModel()}
"""The providers that the agents' model names may begin with, beside those that litellm knows."""
