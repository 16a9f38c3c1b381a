"""The batches in which encoders read: every row once, longest first, in few shapes."""

import numpy as np
import pytest

from georag_jax.models.batches import _length_bucket, batches


def rows(*lengths, of=()):
    return [np.full((*of, length), length, np.int32) for length in lengths]


@pytest.mark.parametrize("of", [(), (2,)])
def test_every_row_is_in_one_batch_as_it_is(of):
    given = rows(*np.random.default_rng(3).integers(0, 90, 200).tolist(), of=of)
    places = []
    for batch in batches(given, 96, 256):
        assert batch.tokens.shape == (len(batch.lengths), *of, batch.tokens.shape[-1])
        assert batch.tokens.size <= max(256, batch.tokens.shape[-1]) * max(np.prod(of), 1)
        for row, length, place in zip(batch.tokens, batch.lengths, batch.places, strict=False):
            np.testing.assert_array_equal(row[..., :length], given[place])
            assert not row[..., length:].any()
        assert not batch.lengths[len(batch.places) :].any()
        places += batch.places.tolist()
    assert sorted(places) == list(range(200))
    assert [given[i].shape[-1] for i in places] == sorted((row.shape[-1] for row in given), reverse=True)


def test_shapes_are_few():
    shapes = set()
    for count in range(1, 70):
        shapes |= {batch.tokens.shape for batch in batches(rows(*[20] * count), 512, 1024)}
    assert shapes == {(1, 24), (4, 24), (16, 24), (32, 24)}


def test_a_row_longer_than_a_batch_has_its_own():
    assert [batch.tokens.shape for batch in batches(rows(100, 90, 3), 128, 64)] == [(1, 104), (1, 96), (1, 8)]


def test_no_rows_no_batches():
    assert list(batches([], 128, 64)) == []


@pytest.mark.parametrize(
    "length, longest, bucket",
    [(0, 64, 8), (1, 64, 8), (16, 64, 16), (17, 64, 24), (33, 40, 40), (102, 512, 104), (130, 512, 144)]
    + [
        (255, 512, 256),
        (256, 512, 256),
        (257, 512, 288),
        (500, 512, 512),
        (513, 8192, 576),
        (5000, 8192, 5120),
        (8192, 8192, 8192),
    ],
)
def test_the_length_that_a_row_is_padded_to(length, longest, bucket):
    assert _length_bucket(length, longest) == bucket
