"""The tasks to train on."""

from __future__ import annotations

from podium.environments.coding.tasks import Tasks

TRAIN = Tasks()
task = TRAIN.add


@task(1, "Return the sum of a and b.", [[1, 2], [-3, 3], [0, 0], [10, 25], [-7, -8], [100, 1]])
def add(a: int, b: int) -> int:
    return a + b


@task(1, "Return a minus b.", [[5, 2], [3, 3], [0, 4], [-1, -6], [100, 1], [2, 9]])
def subtract(a: int, b: int) -> int:
    return a - b


@task(1, "Return the double of n.", [[3], [0], [-4], [21], [1], [1000]])
def double(n: int) -> int:
    return 2 * n


@task(1, "Return n multiplied by itself.", [[3], [-2], [0], [1], [12], [-9]])
def square(n: int) -> int:
    return n * n


@task(1, "Return the larger of a and b.", [[1, 2], [7, 3], [5, 5], [-1, -9], [0, -3], [8, 80]])
def larger(a: int, b: int) -> int:
    return max(a, b)


@task(1, "Return whether n is even.", [[4], [7], [0], [-2], [-5], [101], [88], [1]])
def is_even(n: int) -> bool:
    return n % 2 == 0


@task(
    1,
    "Return the length of the text.",
    [["abc"], [""], ["a b"], ["hello world"], ["x"], ["abcdefgh"]],
)
def text_length(text: str) -> int:
    return len(text)


@task(
    1, "Return the text in capital letters.", [["abc"], ["Hi!"], [""], ["A b C"], ["x1y2"], ["ok"]]
)
def shout(text: str) -> str:
    return text.upper()


@task(1, "Return the text reversed.", [["abc"], ["ab"], [""], ["noon"], ["Hello there"], ["x"]])
def reverse_text(text: str) -> str:
    return text[::-1]


@task(
    1,
    "Return the first item of the list.",
    [[[4, 5]], [[9]], [[-1, 0, 1]], [[7, 7, 8]], [[0, 3]], [[2, 1]]],
)
def first_item(items: list[int]) -> int:
    return items[0]


@task(
    1,
    "Return the greeting 'Hello, NAME!' for a name.",
    [["Ann"], ["Bob"], ["Zoe"], ["Jean Luc"], [""], ["you"]],
)
def greet(name: str) -> str:
    return f"Hello, {name}!"


@task(
    1,
    "Return the sum of the numbers.",
    [[[1, 2, 3]], [[]], [[5]], [[-1, 1]], [[10, 20, 30, 40]], [[2, -5]]],
)
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task(
    2,
    "Return the absolute difference of a and b.",
    [[5, 2], [2, 5], [4, 4], [-3, 3], [0, -8], [100, 99]],
)
def difference(a: int, b: int) -> int:
    return abs(a - b)


@task(
    2,
    "Return the mean of the numbers; 0 if there are none.",
    [[[1, 2, 3]], [[]], [[5]], [[1, 2]], [[-4, 4, 3]], [[0, 0, 1, 1]]],
)
def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0


@task(
    2,
    "Return how many vowels (a, e, i, o, u, small or capital) are in the text.",
    [["hello"], ["xyz"], ["AEIOU"], [""], ["Programming is fun"], ["Queue"]],
)
def count_vowels(text: str) -> int:
    return sum(letter in "aeiou" for letter in text.lower())


@task(
    2,
    "Return the even numbers of the list, in the same order.",
    [[[1, 2, 3, 4]], [[1, 3]], [[]], [[0, -2, 5]], [[8, 8, 7]], [[10, 11, 12, 13, 14]]],
)
def only_even(numbers: list[int]) -> list[int]:
    return [number for number in numbers if number % 2 == 0]


@task(
    2,
    "Return n factorial, that is 1 * 2 * ... * n; 1 for 0.",
    [[3], [0], [1], [5], [10], [7]],
)
def factorial(n: int) -> int:
    result = 1
    for factor in range(2, n + 1):
        result *= factor
    return result


@task(
    2,
    "Return whether the text reads the same backwards.",
    [["noon"], ["moon"], [""], ["a"], ["ab"], ["racecar"], ["Noon"], ["abcba"], ["abca"]],
)
def is_palindrome(text: str) -> bool:
    return text == text[::-1]


@task(
    2,
    "Return the numbers from 1 to n in a list.",
    [[3], [1], [0], [5], [10], [2]],
)
def count_up(n: int) -> list[int]:
    return list(range(1, n + 1))


@task(
    2,
    "Return n, but at least low and at most high.",
    [[5, 1, 10], [0, 1, 10], [12, 1, 10], [1, 1, 1], [-5, -3, 3], [10, 1, 10]],
)
def clamp(n: int, low: int, high: int) -> int:
    return max(low, min(high, n))


@task(
    2,
    "Return the sum of the digits of n, which is not negative.",
    [[123], [0], [9], [1000], [98765], [11]],
)
def digit_sum(n: int) -> int:
    return sum(int(digit) for digit in str(n))


@task(
    2,
    "Return how often the item is in the list.",
    [[[1, 2, 1], 1], [[], 3], [[5, 6, 5], 5], [[1, 2], 3], [[0, 1, 0, 0], 0], [[4, 4], 4]],
)
def count_item(items: list[int], item: int) -> int:
    return items.count(item)


@task(
    2,
    "Return the longest word of the text; of several the first. Words are split at spaces.",
    [["a bbb cc"], ["one two"], ["hello"], ["to be or not"], ["x yy zz"], ["I really like it"]],
)
def longest_word(text: str) -> str:
    return max(text.split(), key=len)


@task(
    3,
    "Return the list without repeated items; the first of each stays in its place.",
    [[[1, 2, 1]], [[3, 3, 3]], [[]], [[4, 1, 4, 2, 1]], [[5, 6]], [[0, -1, 0, -1, 2]]],
)
def unique(items: list[int]) -> list[int]:
    return list(dict.fromkeys(items))


@task(
    3,
    "Return the second largest of the different numbers, or -1 if there is none.",
    [[[1, 3, 2]], [[4, 4]], [[]], [[5, 5, 1]], [[-1, -2, -3]], [[7, 9, 9, 8]]],
)
def second_largest(numbers: list[int]) -> int:
    different = sorted(set(numbers))
    return different[-2] if len(different) > 1 else -1


@task(
    3,
    "Return 'Fizz' if n is divisible by 3, 'Buzz' if by 5, 'FizzBuzz' if by both, else n as text.",
    [[3], [7], [5], [15], [30], [1], [10], [9]],
)
def fizz_buzz(n: int) -> str:
    return "Fizz" * (n % 3 == 0) + "Buzz" * (n % 5 == 0) or str(n)


@task(
    3,
    "Return a dictionary with each letter of the text and how often it occurs.",
    [["abca"], ["zz"], [""], ["Aa"], ["hello"], ["xyz"]],
)
def letter_counts(text: str) -> dict[str, int]:
    return {letter: text.count(letter) for letter in text}


@task(
    3,
    "Return whether n is a prime number.",
    [[7], [9], [1], [2], [3], [25], [97], [91], [13], [49]],
)
def is_prime(n: int) -> bool:
    return n > 1 and all(n % divisor for divisor in range(2, int(n**0.5) + 1))


@task(
    3,
    "Return the first n Fibonacci numbers in a list: 0, 1, 1, 2, ...",
    [[5], [1], [0], [2], [10], [7]],
)
def fibonacci(n: int) -> list[int]:
    numbers = [0, 1]
    while len(numbers) < n:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:n]


@task(
    3,
    "Return the lists joined into one list, in order.",
    [[[[1], [2, 3]]], [[[]]], [[]], [[[4, 5], [], [6]]], [[[1], [1], [1]]], [[[9, 8, 7]]]],
)
def flatten(lists: list[list[int]]) -> list[int]:
    return [item for one in lists for item in one]


@task(
    3,
    "Return the running totals of the list: the sums of its first 1, 2, 3, ... numbers.",
    [[[1, 2, 3]], [[5]], [[]], [[1, -1, 1]], [[10, 10, 10, 10]], [[0, 0, 4]]],
)
def running_totals(numbers: list[int]) -> list[int]:
    totals: list[int] = []
    for number in numbers:
        totals.append(number + (totals[-1] if totals else 0))
    return totals


@task(
    3,
    "Return the matrix with its rows as columns.",
    [
        [[[1, 2], [3, 4]]],
        [[[5]]],
        [[[1, 2, 3]]],
        [[[1], [2]]],
        [[[1, 2], [3, 4], [5, 6]]],
        [[[0, 9], [9, 0]]],
    ],
)
def transpose(matrix: list[list[int]]) -> list[list[int]]:
    return [list(column) for column in zip(*matrix, strict=True)]


@task(
    4,
    "Return the number that the Roman numeral stands for.",
    [["III"], ["IV"], ["IX"], ["LVIII"], ["MCMXCIV"], ["XL"], ["CD"], ["MMXXVI"]],
)
def roman_to_number(text: str) -> int:
    worth = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
    values = [worth[letter] for letter in text]
    following = [*values[1:], 0]
    return sum(
        -value if value < after else value for value, after in zip(values, following, strict=True)
    )


@task(
    4,
    "Return whether every bracket of the text, of the kinds () [] {}, is closed in right order.",
    [["(a[b])"], ["(]"], [""], ["("], [")("], ["{[()]}"], ["((())"], ["no brackets"], ["[(])"]],
)
def is_balanced(text: str) -> bool:
    opening = {")": "(", "]": "[", "}": "{"}
    waiting: list[str] = []
    for letter in text:
        if letter in "([{":
            waiting.append(letter)
        elif letter in opening and (not waiting or waiting.pop() != opening[letter]):
            return False
    return not waiting


@task(
    4,
    "Return the largest sum of neighbouring numbers; neither list nor sum is empty.",
    [
        [[1, -2, 3, 4]],
        [[-5]],
        [[-2, 1, -3, 4, -1, 2, 1, -5, 4]],
        [[1, 2, 4]],
        [[-3, -1, -2]],
        [[5, -9, 7]],
        [[0, -1]],
    ],
)
def largest_run(numbers: list[int]) -> int:
    best = current = numbers[0]
    for number in numbers[1:]:
        current = max(number, current + number)
        best = max(best, current)
    return best


@task(
    4,
    "Merge overlapping or touching intervals [start, end]; return them sorted by start.",
    [
        [[[1, 3], [2, 4]]],
        [[[5, 6], [1, 2]]],
        [[]],
        [[[1, 4], [4, 5]]],
        [[[1, 10], [2, 3], [4, 5]]],
        [[[8, 9], [1, 2], [2, 3], [9, 12]]],
    ],
)
def merge_intervals(intervals: list[list[int]]) -> list[list[int]]:
    merged: list[list[int]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged
