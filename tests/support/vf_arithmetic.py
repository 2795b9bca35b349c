"""A taskset of verifiers as somebody would write it, with a tool; it knows nothing of Podium."""

from collections.abc import Iterator

import verifiers.v1 as vf
from vf_calculator import Calculator


class SumData(vf.TaskData):
    answer: int


def said(trace: vf.Trace) -> list[str]:
    return [str(message.content) for message in trace.assistant_messages]


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=2.0)
    async def right(self, task: SumData, trace: vf.Trace) -> float:
        return float(str(task.answer) in said(trace)[-1].split())

    @vf.reward
    async def tried(self, trace: vf.Trace) -> float:
        if "explode" in said(trace)[-1]:
            raise ValueError("the jury is out")
        return 0.5

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(len(said(trace)))

    @classmethod
    def toolsets(cls, config):
        return [Calculator(vf.ToolsetConfig())]


class Sums(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self) -> Iterator[SumTask]:
        for n in range(20):
            data = SumData(
                prompt=f"What is {n} + 1?", system_prompt="Answer with a number.", answer=n + 1
            )
            yield SumTask(data, self.config.task)


__all__ = ["Sums"]
