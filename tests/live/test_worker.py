"""The worker answers the latest question, and tells an error from a bug."""

import threading

import pytest

from attn_cli.errors import InputError
from attn_cli.live.state import History, Question, State
from attn_cli.live.worker import Worker
from attn_cli.settings.settings import Settings


class Slow:
    """Computes when it is let; keeps what it was asked."""

    def __init__(self):
        self.asked, self.go, self.began = [], threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, question):
        self.asked.append(question.text)
        self.began.release()
        assert self.go.acquire(timeout=10)
        if question.text == "bad":
            raise InputError("no")
        if question.text == "bug":
            raise ZeroDivisionError
        return question.text


@pytest.fixture
def slow():
    return Slow()


@pytest.fixture
def worker(slow):
    answers, came = [], threading.Semaphore(0)

    def tell(answer):
        answers.append(answer)
        came.release()

    made = Worker(slow, tell)
    made.answers, made.came = answers, came
    made.start()
    yield made
    made.stop()


def ask(worker, text):
    return worker.ask(Question(text, Settings()))


def test_what_is_stale_is_neither_computed_nor_told(slow, worker):
    ask(worker, "a")
    assert slow.began.acquire(timeout=10)
    for text in "bcdef":
        last = ask(worker, text)  # while a is being computed
    slow.go.release()
    slow.go.release()
    assert worker.came.acquire(timeout=10)
    assert slow.asked == ["a", "f"]
    assert [(answer.number, answer.trace) for answer in worker.answers] == [(last, "f")]


def test_an_error_is_told_and_the_worker_goes_on(slow, worker):
    for text in ("bad", "good"):
        ask(worker, text)
        slow.go.release()
        assert worker.came.acquire(timeout=10)
    bad, good = worker.answers
    assert isinstance(bad.error, InputError) and not bad.is_bug
    assert good.trace == "good" and good.error is None


def test_a_bug_is_told_even_if_the_question_is_stale(slow, worker):
    ask(worker, "bug")
    assert slow.began.acquire(timeout=10)
    ask(worker, "later")
    slow.go.release()
    assert worker.came.acquire(timeout=10)
    assert worker.answers[0].is_bug
    slow.go.release()


def test_history_goes_back_to_the_question_before_and_forgets_it():
    history = History()
    states = [State(Question(text, Settings())) for text in "abc"]
    for state in states[:2]:
        history.keep(state)
        history.keep(state)
    assert history.back(states[2]) == states[1]
    assert history.back(states[1]) == states[0]
    assert history.back(states[0]) is None
