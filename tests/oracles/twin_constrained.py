"""A join under constraints in plain Python: every tuple looks at every row that is kept, and drops what is over."""

from __future__ import annotations

from typing import Any

LEAST, NEVER = -(1 << 62), 1 << 62


class Twin:
    """on: of the join, pairs of places in the rows; ks: by (kind, side) (k, places among `on`)."""

    def __init__(
        self,
        on: list[tuple[int, int]],
        ks: dict[tuple[str, int], tuple[int, tuple[int, ...]]],
        windows: tuple[int, int],
    ) -> None:
        self.on, self.ks, self.windows = on, ks, windows
        self.rows: list[list[dict[str, Any]]] = [[], []]
        self.seen = [0, 0]
        self.values: list[list[int]] = [[], []]
        self.clusters: list[list[tuple[Any, ...]]] = [[], []]
        self.child = next((side for kind, side in ks if kind in ("many one", "referential")), -1)
        linked = next((on for (kind, _), (_, on) in sorted(ks.items()) if kind == "clustered"), tuple(range(len(on))))
        self.linked = linked

    def k(self, kind: str, side: int) -> int | None:
        return self.ks[kind, side][0] if (kind, side) in self.ks else None

    def mark(self, side: int) -> int:
        """Nothing below it comes next."""
        k = self.k("ordered", side)
        if k is None:
            return LEAST
        return max(self.values[side][: max(0, len(self.values[side]) - k)], default=LEAST)

    def goes_on(self, side: int, link: tuple[Any, ...]) -> bool:
        """Whether a cluster of a side has begun and may have more."""
        k = self.k("clustered", side)
        assert k is not None
        return link in self.clusters[side][-(k + 1) :]

    def come(self, side: int, ts: int, row: tuple[Any, ...]) -> list[tuple[int, tuple[Any, ...], tuple[Any, ...]]]:
        """The pairs of a tuple: (instant, left row, right row), the newest partner first."""
        other = 1 - side
        ordinal, self.seen[side] = self.seen[side], self.seen[side] + 1
        key = tuple(row[pair[side]] for pair in self.on)
        if None in key:
            return []
        link = tuple(key[at] for at in self.linked)
        order = next((on[0] for (kind, _), (_, on) in self.ks.items() if kind == "ordered"), 0)
        mark, value = self.mark(side), key[order]
        held = [
            one
            for one in self.rows[other]
            if one["until"] > ts and one["deadline"] > ordinal and (mark == LEAST or one["value"] >= mark)
        ]
        begun = any(one["link"] == link for one in held)
        found = [one for one in held if one["key"] == key]
        out = [(ts, *((row, one["row"]) if side == 0 else (one["row"], row))) for one in found[::-1]]
        if self.child == other:
            self.rows[other] = [one for one in self.rows[other] if one not in found]
        waits = self.k("referential", side)
        deadline = NEVER if waits is None else self.seen[other] + waits
        stays = deadline > self.seen[other] and not (self.child == side and found)
        if (there := self.mark(other)) != LEAST:
            stays = stays and value >= there
        if self.k("clustered", other) is not None and begun and not self.goes_on(other, link):
            stays = False
        if stays:
            until = NEVER if self.windows[side] < 0 else ts + self.windows[side] + 1
            self.rows[side].append(
                {"row": row, "key": key, "link": link, "until": until, "deadline": deadline, "value": value}
            )
        if self.k("ordered", side) is not None:
            self.values[side].append(value)
        if (k := self.k("clustered", side)) is not None:
            before = self.clusters[side][-(k + 1) :]
            self.clusters[side].append(link)
            over = set(before) - set(self.clusters[side][-(k + 1) :])
            self.rows[other] = [one for one in self.rows[other] if one["link"] not in over]
        return out
