"""A tool of the taskset `vf_arithmetic`, which verifiers runs in a process of its own."""

import verifiers.v1 as vf


class Calculator(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = "calculator"

    @vf.tool
    def add(self, a: int, b: int) -> str:
        """Adds two numbers."""
        return str(a + b)


if __name__ == "__main__":
    Calculator.run()
