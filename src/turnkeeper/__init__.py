"""Agents as tools, durable, on Temporal: what an agent author and a client import."""

from turnkeeper.agents import Agent, ChatAgent
from turnkeeper.client import TurnkeeperClient
from turnkeeper.connection import connect
from turnkeeper.errors import (
    AgentDefinitionError,
    Conflict,
    InvalidRequest,
    NotFound,
    RequestError,
    TooLarge,
    TurnkeeperError,
    Unavailable,
)
from turnkeeper.messages import UIMessage, user_message
from turnkeeper.models import CustomModel, CustomModelReply, CustomModelToolCall
from turnkeeper.registry import AgentRegistry
from turnkeeper.runs import (
    AgentToolFailure,
    AgentToolMilestone,
    AgentToolProgress,
    AgentToolResult,
    AgentToolRunInfo,
    AgentToolRunInspection,
    Display,
)
from turnkeeper.runtime import AgentToolInputRequest, ToolCall
from turnkeeper.settings import Settings
from turnkeeper.tools import agent_tool, tool

__all__ = [
    "Agent",
    "AgentDefinitionError",
    "AgentRegistry",
    "AgentToolFailure",
    "AgentToolInputRequest",
    "AgentToolMilestone",
    "AgentToolProgress",
    "AgentToolResult",
    "AgentToolRunInfo",
    "AgentToolRunInspection",
    "ChatAgent",
    "Conflict",
    "CustomModel",
    "CustomModelReply",
    "CustomModelToolCall",
    "Display",
    "InvalidRequest",
    "NotFound",
    "RequestError",
    "Settings",
    "TooLarge",
    "ToolCall",
    "TurnkeeperClient",
    "TurnkeeperError",
    "UIMessage",
    "Unavailable",
    "agent_tool",
    "connect",
    "tool",
    "user_message",
]
