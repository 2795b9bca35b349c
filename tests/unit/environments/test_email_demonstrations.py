"""What examples/email_demonstrations.py writes is what `podium sft` takes."""

from __future__ import annotations

from podium.environments import Scripted, play
from podium.environments.email_search import EmailSearch
from podium.training.sft.files import read_rows
from support.examples import example


async def test_the_demonstrations_of_email_search_succeed_and_train_their_own_words_alone() -> None:
    rows = [row async for row in example("email_demonstrations").demonstrations()]
    assert len(rows) > 100
    environment = EmailSearch({"actions": ["search", "select"]})
    asked = {each.data["question"]: each for each in environment.scenarios("train")}
    for conversation in read_rows(rows).rows[:20]:
        *opening, question, search, results, select = conversation.messages
        assert conversation.trained == (len(opening) + 1, len(opening) + 3)
        scenario = asked[question.content.removeprefix("Question: ")]
        observation = await environment.reset(scenario, 0)
        assert [each.content for each in observation.messages] == [
            each.content for each in (*opening, question)
        ]
        played = await play(
            environment, scenario, Scripted([search.content, select.content]), max_turns=2
        )
        assert played.metrics["success"] == 1
        assert results.content.startswith("Results:\n")
