"""The tasks to measure with; none of them is trained on."""

from __future__ import annotations

from podium.environments.coding.tasks import Tasks

HELDOUT = Tasks()
task = HELDOUT.add


@task(1, "Return the product of a and b.", [[2, 3], [4, 0], [-2, 5], [7, 7], [1, 9], [-3, -3]])
def multiply(a: int, b: int) -> int:
    return a * b


@task(1, "Return the smaller of a and b.", [[1, 2], [7, 3], [5, 5], [-1, -9], [0, 4], [60, 6]])
def smaller(a: int, b: int) -> int:
    return min(a, b)


@task(1, "Return n plus one.", [[1], [0], [-1], [99], [12], [-50]])
def successor(n: int) -> int:
    return n + 1


@task(1, "Return whether n is negative.", [[-1], [3], [0], [-100], [7], [-5], [1]])
def is_negative(n: int) -> bool:
    return n < 0


@task(
    1,
    "Return the last item of the list.",
    [[[4, 5]], [[9]], [[-1, 0, 1]], [[7, 8, 7]], [[3, 0]], [[1, 2]]],
)
def last_item(items: list[int]) -> int:
    return items[-1]


@task(1, "Return the text in small letters.", [["ABC"], ["Hi!"], [""], ["A b C"], ["X1Y2"], ["OK"]])
def whisper(text: str) -> str:
    return text.lower()


@task(
    2,
    "Return how many words the text has. Words are split at spaces.",
    [["a b c"], ["hello"], [""], ["  two  words "], ["to be or not to be"], ["x y z"]],
)
def count_words(text: str) -> int:
    return len(text.split())


@task(
    2,
    "Return the numbers of the list that are greater than the limit, in the same order.",
    [[[1, 5, 3], 2], [[1], 1], [[], 0], [[-1, -5], -3], [[9, 8, 9], 8], [[4, 2], 9]],
)
def above(numbers: list[int], limit: int) -> list[int]:
    return [number for number in numbers if number > limit]


@task(
    2,
    "Return the difference between the largest and the smallest number; 0 if there are none.",
    [[[1, 5, 3]], [[]], [[7]], [[-4, 4]], [[2, 2, 2]], [[10, 0, 100]]],
)
def spread(numbers: list[int]) -> int:
    return max(numbers) - min(numbers) if numbers else 0


@task(
    2,
    "Return base to the power of exponent, which is not negative.",
    [[2, 3], [5, 0], [0, 4], [-2, 3], [10, 5], [1, 100]],
)
def power(base: int, exponent: int) -> int:
    return int(base**exponent)


@task(
    2,
    "Return the first letters of the words, as capitals, in one text. Words are split at spaces.",
    [["very good day"], ["solo"], [""], ["United Nations"], ["as far as I know"], ["new York"]],
)
def initials(text: str) -> str:
    return "".join(word[0].upper() for word in text.split())


@task(
    3,
    "Return whether the two texts have the same letters, each as often.",
    [
        ["listen", "silent"],
        ["abc", "abd"],
        ["", ""],
        ["aab", "abb"],
        ["a", "aa"],
        ["dusty", "study"],
    ],
)
def is_anagram(one: str, other: str) -> bool:
    return sorted(one) == sorted(other)


@task(
    3,
    "Return the greatest common divisor of a and b, which are positive.",
    [[12, 18], [7, 5], [9, 9], [100, 75], [1, 8], [48, 36]],
)
def common_divisor(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


@task(
    3,
    "Return the list split into lists of the given size; the last may be shorter.",
    [
        [[1, 2, 3, 4, 5], 2],
        [[1, 2], 2],
        [[], 3],
        [[7, 8, 9], 1],
        [[1, 2, 3], 5],
        [[0, 1, 2, 3, 4, 5], 4],
    ],
)
def chunks(items: list[int], size: int) -> list[list[int]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


@task(
    3,
    "Return the text with each run of equal letters as the letter and the run's length.",
    [["aaab"], ["abc"], [""], ["zzzz"], ["aabbaa"], ["x"]],
)
def run_lengths(text: str) -> str:
    result, start = "", 0
    for place in range(1, len(text) + 1):
        if place == len(text) or text[place] != text[start]:
            result += f"{text[start]}{place - start}"
            start = place
    return result


@task(
    4,
    "Return the length of the longest part of the text in which no letter repeats.",
    [["abcabcbb"], ["bbbb"], [""], ["pwwkew"], ["abcdef"], ["dvdf"], ["abba"]],
)
def longest_distinct(text: str) -> int:
    best = start = 0
    seen: dict[str, int] = {}
    for place, letter in enumerate(text):
        start = max(start, seen.get(letter, -1) + 1)
        seen[letter] = place
        best = max(best, place - start + 1)
    return best


@task(
    4,
    "Return the fewest coins that make the amount, each kind as often as needed; -1 if none do.",
    [
        [[1, 2, 5], 11],
        [[2], 3],
        [[1], 0],
        [[1, 3, 4], 6],
        [[5, 10], 30],
        [[7, 3], 5],
        [[2, 5], 11],
    ],
)
def fewest_coins(coins: list[int], amount: int) -> int:
    fewest = [0] + [amount + 1] * amount
    for total in range(1, amount + 1):
        for coin in coins:
            if coin <= total:
                fewest[total] = min(fewest[total], fewest[total - coin] + 1)
    return fewest[amount] if fewest[amount] <= amount else -1


@task(
    4,
    "Return the number as a Roman numeral; it is from 1 to 3999.",
    [[3], [4], [9], [58], [1994], [40], [400], [3999]],
)
def number_to_roman(number: int) -> str:
    parts = {
        1000: "M",
        900: "CM",
        500: "D",
        400: "CD",
        100: "C",
        90: "XC",
        50: "L",
        40: "XL",
        10: "X",
        9: "IX",
        5: "V",
        4: "IV",
        1: "I",
    }
    text = ""
    for worth, numeral in parts.items():
        text += numeral * (number // worth)
        number %= worth
    return text
