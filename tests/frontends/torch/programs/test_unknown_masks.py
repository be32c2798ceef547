"""How many elements masks choose whose values are not known."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import flint.frontends.torch.programs.rank  # noqa: F401  # here, not in every child
from flint.errors import UsageError
from flint.launching.stated_values import MaskShares, shares_of

MASKS = """
        from flint.frontends.torch.context import capture
        scores = torch.randn(4, 6, device="cuda")
        keep = scores > 0.5
"""


def test_an_unknown_mask_chooses_all_that_it_can(said):
    assert said(f"""{MASKS}
        found = scores[keep], keep.nonzero(), scores.masked_select(keep[:, :1]), *torch.where(keep)
        shapes = [list(item.shape) for item in (*found, scores[keep[:, 0]])]
        [text] = {{text.partition(" at ")[0] for text in capture().assumed}}
        say(shapes, text, len(capture().assumed))
    """) == [
        [[24], [24, 2], [24], [24], [24], [4, 6]],
        "values that are not known choose elements",
        2,  # lines
    ]


def test_a_share_replaces_the_upper_bound_and_a_line_has_its_own(said):
    """A quarter of 24 elements is 6, of 4 rows 1; a tenth of 24 is less than 3."""
    assert said(f"""{MASKS}
        from flint.frontends.torch.user_lines import at_user_line
        from flint.launching.stated_values import MaskShares
        capture().mask_shares = MaskShares(0.25)
        found = [scores[keep], scores[keep[:, 0]]]
        for tenth in (True, False):
            place = at_user_line().rpartition("/")[2] if tenth else ""; found.append(scores[keep])
            capture().mask_shares = MaskShares(1.0, {{place: 0.1}})
        say([list(item.shape) for item in found])
    """) == [[[6], [1, 6], [6], [3]]]


def test_items_of_unknown_values_may_all_be_different(said):
    """At most 24 different ones of 24, of which a quarter is 6; each has a number among them."""
    assert said(f"""{MASKS}
        from flint.launching.stated_values import MaskShares
        every = scores.unique(), *scores.unique(return_inverse=True, return_counts=True)
        runs = scores.unique_consecutive(return_counts=True)
        capture().mask_shares = MaskShares(0.25)
        share = scores.unique(return_inverse=True)
        say([list(item.shape) for item in (*every, *runs, *share)])
    """) == [[[24], [24], [4, 6], [24], [24], [24], [6], [4, 6]]]


def test_a_mask_chooses_as_many_places_as_were_set_in_it(said):
    """As a sampler marks 5 good and 3 bad boxes of 24, each at a place that is not known."""
    assert said(f"""{MASKS}
        def marked(count, dtype=torch.uint8):
            mask = torch.zeros_like(scores, dtype=dtype).view(-1)
            mask[scores.view(-1).sort().indices[:count]] = 1
            return mask
        def overwritten(mask):
            return mask.copy_(keep.view(-1))
        rows = torch.zeros(4, dtype=torch.bool, device="cuda")
        rows = rows.index_fill(0, scores.argmax(0)[:2], True)
        put = torch.zeros(4, 6, device="cuda").scatter(1, scores.topk(2).indices, scores[:, :2])
        part = torch.zeros(4, 6, 5, device="cuda")
        part[marked(7).view(4, 6).bool()] = 1  # 7 places of 5
        part[:, scores.argmax(0)[:2]] = 1  # 4 rows of 2 of 5
        masks = [
            marked(5), marked(5) | marked(3), marked(5) & marked(9), marked(5, torch.int64) >= 1,
            marked(2) == 0, overwritten(marked(5)), put.view(-1) > 0.5,
        ]
        found = [len(scores.view(-1)[item.bool()]) for item in masks]
        say(found, len(scores[rows]), len(part[part > 0]))
    """) == [[5, 8, 5, 5, 24, 24, 8], 2, 75]


def test_a_known_mask_loses_only_the_places_that_are_written(said):
    """Anchors in boxes, of which an assigner drops some: 3 of 5 are written, in both images."""
    assert said(f"""{MASKS}
        from flint.launching.stated_values import MaskShares
        inside = torch.tensor([True, False, True, True, False]).to("cuda")
        def kept(mask, candidates):
            mask = mask.clone()
            mask[candidates] = scores.view(-1)[:int(candidates.cpu().sum())] > 0.5
            return mask
        some = torch.tensor([True, False, False, False, False]).to("cuda")
        boxes, found = scores.view(-1)[:5], []
        for share in (1.0, 0.5):
            capture().mask_shares = MaskShares(share)
            both = torch.cat([kept(inside, inside), kept(inside, some)])
            found += [len(boxes[kept(inside, inside)]), len(torch.cat([boxes, boxes])[both])]
        say(found)
    """) == [[3, 3 + 3, 2, 2 + 3]]


def test_numbers_may_stand_in_front_of_masks_and_choices(said):
    """As ``torch.add(0.33, mask)``, ``2 // choices``."""
    assert said(f"""{MASKS}
        both = torch.add(0.5, keep, alpha=2), torch.mul(2, keep), torch.floor_divide(7, scores)
        say([list(item.shape) for item in (*both, 2 // (scores.argmax(1) + 1))])
    """) == [[[4, 6], [4, 6], [4, 6], [4]]]


def test_known_masks_keep_their_numbers(said):
    assert said(f"""{MASKS}
        labels = torch.tensor([1, -100, 3, 4]).to("cuda")
        say(len(scores[labels != -100]), len(capture().assumed))
    """) == [3, 0]


def test_shares_on_the_command_line():
    assert shares_of(["0.5", "boxes.py:151=0.25"]) == MaskShares(0.5, {"boxes.py:151": 0.25})
    given = shares_of(["boxes.py:151=0.25"])
    assert given.at("torchvision/ops/boxes.py:151") == 0.25
    assert given.at("torchvision/ops/other_boxes.py:151") is None
    for wrong in (["2"], ["some"], ["boxes.py:151="], ["0.5", "0.6"]):
        with pytest.raises(UsageError, match="--mask-share"):
            shares_of(wrong)


def test_a_count_of_a_mask_is_as_many_as_the_mask_is_assumed_to_choose(said):
    """Of 24 elements in rows of 6: what nonzero() gives; a quarter of 24 is 6, of a row 2."""
    assert said(f"""{MASKS}
        from flint.launching.stated_values import MaskShares
        capture().strict_values = True
        marked = torch.full((4, 6), -1, device="cuda").scatter_(1, scores.topk(2).indices, 1)
        def read():
            both = keep.sum() + (marked == 1).long().sum()
            return [
                int(keep.sum()), len(keep.nonzero()), keep.sum(1).tolist(), both.item(),
                torch.count_nonzero(keep).item(), int(keep.int().sum()),
                keep.sum(1).max().item(), int(keep.sum(0).amin()),
            ]
        every = read()
        capture().mask_shares = MaskShares(0.25)
        share, written = read(), torch.zeros(4, 6, dtype=torch.bool, device="cuda")
        written[scores.argmax(0)[:3]] = True  # 3 rows of 6
        say(every, share, int(written.sum()), written.sum(0)[0].item())
    """) == [
        [24, 24, [6] * 4, 48, 24, 24, 6, 4],
        [6, 6, [2] * 4, 12, 6, 6, 2, 1],
        18,
        4,
    ]


def test_places_that_a_mask_chooses_are_the_first_ones(said):
    """A program that reads them picks as many different items of a list."""
    assert said(f"""{MASKS}
        from flint.launching.stated_values import MaskShares
        capture().mask_shares = MaskShares(0.5)
        column, rows = keep[:, 0].nonzero().squeeze(1), keep.nonzero()
        say(column.tolist(), rows[-1].cpu().numpy().tolist())
    """) == [[0, 1], [1, 5]]


def test_choices_that_a_mask_picks_are_choices(said):
    """As a detector reads which box each of the anchors matches best that it has sampled."""
    assert said(f"""{MASKS}
        capture().strict_values = True
        best = scores.max(1).indices
        say(best[keep[:, 0]].tolist(), best[keep[:, 0].nonzero().squeeze(1)].cpu().numpy().tolist())
    """) == [[0] * 4, [0] * 4]
