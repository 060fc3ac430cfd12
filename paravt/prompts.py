"""What the model is told: one system prompt for the main agent, one short prompt for the sub-agents.

`python -m paravt.prompts` prints the system prompt and the tool schema, for other agents that drive a trained model.
"""

import json
import re


TOOL = {
    "type": "function",
    "function": {
        "name": "crop_video",
        "description": "Look closely at a part of a video: a helper watches it at a higher frame rate and reports.",
        "parameters": {
            "type": "object",
            "properties": {
                "video_path": {"type": "string", "description": "Name of the video."},
                "start_time": {"type": "number", "description": "Start of the part, in seconds."},
                "end_time": {"type": "number", "description": "End of the part, in seconds."},
            },
            "required": ["video_path", "start_time", "end_time"],
        },
    },
}

INSTRUCTIONS = (
    "You answer questions about videos. You see a few frames of the whole video, each after its time. "
    "Think inside <think></think>. If the frames are enough, give the answer inside <answer></answer>. "
    "If not, call crop_video, several times in one turn to look at several parts at once, "
    "then think again and answer."
)

# The text that the chat template of Qwen3-VL writes for `tools=[TOOL]`. It is part of the system prompt here, so that
# the prompt is the same whether a serving engine is given the tool or the rows carry this system prompt.
_TOOLS_BLOCK = (
    "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    + json.dumps(TOOL)
    + "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)

SUBAGENT_INSTRUCTIONS = (
    "You see frames of a part of a video, each after its time. Report briefly what matters for the question."
)

THINK_PREFIX = "<think>\n"
LAST_TURN = "\nNo calls are left. Answer now."


def system_prompt(instructions: str = INSTRUCTIONS, tools: bool = True) -> str:
    """The system prompt; with `tools` it ends in the schema of `crop_video`, as the chat template would write it."""
    return instructions + (_TOOLS_BLOCK if tools else "")


def offers_tool(prompt: str) -> bool:
    """Whether a system prompt has the schema of `crop_video`: its name in quotes, not a mere mention."""
    return re.search("[\"']crop_video[\"']", prompt) is not None


def frame_parts(frames: list) -> list[dict]:
    """Content parts of timed frames: `<12.5 seconds>` in true seconds of the source video, then the image."""
    parts = []
    for frame in frames:
        parts.append({"type": "text", "text": f"<{frame.time:.1f} seconds>"})
        parts.append({"type": "image", "image": frame})
    return parts


def video_header(name: str, duration: float) -> dict:
    """The line that names a video and its length, without which a model can only guess what to ask for."""
    return {"type": "text", "text": f"Video {name}, {duration:.1f} seconds.\n"}


def subagent_messages(question: str, start: float, end: float, frames: list) -> list[dict]:
    """The conversation of one sub-agent: the frames of its window with absolute times, then the question."""
    header = {"type": "text", "text": f"Seconds {start:.1f} to {end:.1f} of the video.\n"}
    return [
        {"role": "system", "content": [{"type": "text", "text": SUBAGENT_INSTRUCTIONS}]},
        {
            "role": "user",
            "content": [header, *frame_parts(frames), {"type": "text", "text": f"\nQuestion: {question}"}],
        },
    ]


if __name__ == "__main__":
    print(system_prompt())
    print()
    print(json.dumps(TOOL, indent=2))
