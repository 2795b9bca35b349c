"""An agent written with LangGraph: it answers, is asked to check itself, and answers again.

It knows nothing of Podium; `train_langgraph.py` trains it as it is.
"""

from __future__ import annotations

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph

SYSTEM = "Answer with one short sentence."


async def answer(question: str, *, base_url: str, api_key: str, model: str) -> str:
    """The agent's last word on a question."""
    llm = ChatOpenAI(
        base_url=base_url,
        api_key=lambda: api_key,
        model=model,
        max_completion_tokens=24,
        streaming=True,
    )

    async def speak(state: MessagesState) -> MessagesState:
        return {"messages": [await llm.ainvoke(state["messages"])]}

    async def doubt(state: MessagesState) -> MessagesState:
        return {"messages": [HumanMessage("Are you sure? Answer once more, in fewer words.")]}

    graph = StateGraph(MessagesState)
    graph.add_node("first", speak)
    graph.add_node("doubt", doubt)
    graph.add_node("second", speak)
    graph.add_edge(START, "first")
    graph.add_edge("first", "doubt")
    graph.add_edge("doubt", "second")
    graph.add_edge("second", END)
    state = await graph.compile().ainvoke(
        {"messages": [SystemMessage(SYSTEM), HumanMessage(question)]}
    )
    return str(state["messages"][-1].content)
