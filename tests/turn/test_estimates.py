"""B4: what is charged where output was delivered and nobody metered it: by text, never above the reservation.

A token of input costs 1000 nano-dollars, of output 2000; the request's "hi" is one token.
"""

import pytest

from gateway.upstream.scripted import Break
from gateway.upstream.scripts import event
from support.gateways import cost, play, world
from support.virtual import in_every_order
from support.voices import A

RESERVED = cost(1, 1000)


@pytest.mark.parametrize(
    ("deltas", "tokens"),
    [(["hell"], 2), (["hi"] * 3, 2), (["é" * 3], 2), ([""], 0), (['"\\n'], 1)],
    ids=repr,
)
@in_every_order
async def test_b4_delivered_text_is_estimated_by_its_bytes(door: str, deltas: list[str], tokens: int) -> None:
    """B4: UTF-8 bytes of the text, not of its JSON, over all deltas, divided by three, rounded up."""
    w = world(A.reply(A.prelude, *map(A.delta, deltas), Break()))
    await play(w, door)
    assert w.money == [f"settled {cost(1, tokens)} estimated"]


@in_every_order
async def test_b4_an_estimate_never_exceeds_the_reservation(door: str) -> None:
    """B4."""
    w = world(A.reply(A.prelude, A.delta("x" * 9000), Break()))
    await play(w, door)
    assert w.money == [f"settled {RESERVED} estimated"]


@pytest.mark.parametrize(
    "output",
    [
        A.output("response.image_generation_call.partial_image", partial_image_b64="x" * 9000),
        A.output("response.audio.delta", delta="x" * 9000),
        A.output("response.output_item.added", item={"type": "function_call"}),
        event("response.something_new", secret="x" * 9000),
    ],
    ids=["image", "audio", "item", "unknown"],
)
@in_every_order
async def test_b4_base64_and_structure_are_not_counted_as_text(door: str, output: bytes) -> None:
    """B4: output was delivered, but no text; so the input is what is estimated."""
    w = world(A.reply(A.prelude, output, Break()))
    await play(w, door)
    assert w.money == [f"settled {cost(1, 0)} estimated"]


@in_every_order
async def test_b4_images_and_files_of_the_input_count_flat(door: str) -> None:
    """B4: 1000 tokens an image, 5000 a file, whatever their bytes."""
    content = [
        {"type": "input_text", "text": "hi"},
        {"type": "input_image", "image_url": "data:image/png;base64," + "x" * 9000},
        {"type": "input_file", "file_data": "x" * 9000},
    ]
    w = world(A.reply(A.prelude, A.delta(), Break()))
    await play(w, door, input=[{"role": "user", "content": content}])
    tokens = w.charged // 1000 - 2
    assert 6001 <= tokens < 6050
