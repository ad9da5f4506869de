"""The router's policies, models and configuration errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quire.routing import POLICIES, Router, RoutingConfig, RoutingError, parse_models
from routing.bags import BagOfWords

MODELS = {"small": "mini", "large": "chat"}


def test_round_robin_gives_each_its_turn_from_any_thread():
    router = Router(RoutingConfig("round-robin", {"a": "x", "b": "y", "c": "z"}))
    assert [router.route("?").model for _ in range(4)] == ["x", "y", "z", "x"]
    with ThreadPoolExecutor(4) as threads:
        models = list(threads.map(lambda _: router.route("?").model, range(30)))
    assert [models.count(each) for each in "xyz"] == [10, 10, 10]


def test_a_file_configures_a_router_and_names_others_beside_it(tmp_path: Path):
    (tmp_path / "examples.yaml").write_text("a: [red fish]\nb: [blue bird]\n")
    path = tmp_path / "routing.yaml"
    path.write_text("policy: domain\nmodels: {a: x, b: y}\ndomain: {examples: examples.yaml}\n")
    config = RoutingConfig.from_file(path)
    assert config.domain_examples == tmp_path / "examples.yaml"
    assert Router(config, ["y", "x"], BagOfWords()).route("a bird").model == "y"
    (tmp_path / "questions.yaml").write_text("small: [who is it]\nlarge: [why is it]\n")
    path.write_text("policy: query\nmodels: {small: x, large: y}\nquery: {examples: questions.yaml, threshold: 100}\n")
    assert Router(RoutingConfig.from_file(path), embedder=BagOfWords()).route("Why?").model == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policy: best\nmodels: {a: x}", "no policy 'best'; there are round-robin, query, domain, slo"),
        ("policy: query", "lacks 'models'"),
        ("policy: query\nmodels: {}", "no models are named"),
        ("policy: query\nmodels: [x, y]", "a mapping of roles"),
        ("policy: query\nmodels: {small: x}", "small=NAME,large=NAME; got small"),
        ("policy: query\nmodels: {small: x, large: z}", "'z' (large) is not served; served are x, y"),
        (
            "policy: query\nmodels: {small: x, large: y}\nquery: {limit: 1}",
            "query has 'limit'; known are examples, thr",
        ),
        ("policy: query\nmodels: {small: x, large: y}\nquery: {examples: none.yaml}", "none.yaml cannot be read"),
        ("policy: query\nmodels: {small: x, large: y}", "the policy query needs an embedder"),
        ("policy: query\nmodels: {small: x, large: y}\nquery: 3", "query should be a mapping"),
        ("policy: domain\nmodels: {a: x}", "needs an embedder"),
        ("- policy", "should be a mapping"),
        ("policy: [", "is not YAML"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(tmp_path: Path, text: str, message: str):
    path = tmp_path / "routing.yaml"
    path.write_text(text)
    with pytest.raises(RoutingError) as error:
        Router(RoutingConfig.from_file(path), ["x", "y"], BagOfWords() if "none.yaml" in text else None)
    assert message in str(error.value)


def test_a_file_without_examples_for_a_role_is_refused(tmp_path: Path):
    (tmp_path / "examples.yaml").write_text("a: []\n")
    config = RoutingConfig("domain", {"a": "x"}, domain_examples=tmp_path / "examples.yaml")
    with pytest.raises(RoutingError, match=r"the examples of 'a' should be a list of texts"):
        Router(config, embedder=BagOfWords())


def test_models_are_named_by_role_or_by_themselves():
    assert parse_models("small=a, large=b") == {"small": "a", "large": "b"}
    assert parse_models("a,b") == {"a": "a", "b": "b"}
    for wrong in ("", "a=", "=a", "a=1,a=2", "a,,b"):
        with pytest.raises(RoutingError):
            parse_models(wrong)


def test_every_policy_has_its_name():
    assert set(POLICIES) == {"round-robin", "query", "domain", "slo"}
    for name in ("round-robin", "slo"):
        assert Router(RoutingConfig(name, MODELS)).policy.name == name
