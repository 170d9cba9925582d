"""What one preference is asked to be good at, as a section of a page: its figures over the budgets."""

from __future__ import annotations

from nile.report.pages import prose
from nile.report.pages.curves import curve_figure
from nile.report.pages.markup import Markup, element
from nile.report.runs import FIGURES, Runs

__all__ = ["preference_section"]

FIRST = {
    "desc": ("recall", "mean_age_s"),
    "weighted": ("hist_mse_key", "hist_mse_age"),
    "asc": ("outlier_recall", "outlier_precision"),
}
"""The figures a preference is about; the others of FIGURES fold away below them."""


def preference_section(runs: Runs, preference: str) -> Markup:
    """Title, meaning, the figures that the preference is about, and the others folded away."""
    title, meaning = prose.PREFERENCES.get(preference, (preference.capitalize(), ""))
    cap = runs.of("outlier_cap")
    if preference == "asc" and cap is not None:
        meaning += (
            f" A key is rare while both streams together have at most {cap} tuples of it in the window, at the "
            "moment the pair is complete. The paper's own definition folds away below."
        )
    first = [FIGURES[key] for key in FIRST.get(preference, ("recall",))]
    rest = [figure for figure in FIGURES.values() if figure not in first]
    more = element(
        "details",
        element("summary", f"The other figures under {preference}"),
        element("div", *(curve_figure(runs, preference, figure) for figure in rest), class_="charts"),
        class_="more",
    )
    return element(
        "section",
        element("h2", title, " ", element("code", preference)),
        element("p", meaning, class_="prose"),
        element("div", *(curve_figure(runs, preference, figure) for figure in first), class_="charts"),
        more,
        class_="question",
    )
