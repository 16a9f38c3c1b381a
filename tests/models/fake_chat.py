"""A chat model that answers what a function says, and notes what it was asked."""

from georag_jax.models.chat import ChatModel, Completion


class FakeChat:
    """``behave(question, i, sampling)`` gives the i-th answer, text or Completion, to the last message of a chat."""

    def __init__(self, behave, fingerprint="fake:1"):
        self.behave, self.fingerprint = behave, fingerprint
        self.calls = []  # (last messages, n, sampling)

    def complete(self, chats, n, sampling, progress=None):
        asked = [chat[-1]["content"] for chat in chats]
        self.calls.append((asked, n, sampling))
        answers = []
        for done, question in enumerate(asked, 1):
            given = [self.behave(question, i, sampling) for i in range(n)]
            answers.append([g if isinstance(g, Completion) else Completion(g, cut=False) for g in given])
            if progress:
                progress(done)
        return answers

    def count(self, text):
        return len(text.split())

    @property
    def samples(self):
        """Answers asked for so far."""
        return sum(len(asked) * n for asked, n, _ in self.calls)


assert isinstance(FakeChat(lambda *_: ""), ChatModel)
