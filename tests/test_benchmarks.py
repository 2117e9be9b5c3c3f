"""Task classes of benchmarks: names as published tables and evaluation programs write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvwall.spaces.benchmarks import known_benchmarks, load_rules, task_class, tier
from kvwall.spaces.errors import InputError
from kvwall.spaces.quality import TASKS

NAMES = [
    ("RULER", "niah_single_1", "retrieval_easy", "easy"),
    ("RULER", "niah_single_3", "retrieval_hard", "hard"),
    ("RULER", "niah_multikey_1", "retrieval_easy", "easy"),
    ("RULER", "niah_multikey_2", "retrieval_hard", "hard"),
    ("RULER", "niah_multikey_3", "retrieval_hard", "hard"),
    ("RULER", "niah_multiquery", "retrieval_easy", "easy"),
    ("RULER", "niah_multivalue", "retrieval_easy", "easy"),
    ("RULER", "vt", "retrieval_easy", "tracing"),
    ("RULER", "cwe", "aggregate", ""),
    ("RULER", "qa_2", "aggregate", ""),
    ("RULER", "average", "aggregate", "average_of_tiers"),
    ("InfiniteBench", "kv_retrieval", "retrieval_hard", "hard"),
    ("InfiniteBench", "passkey", "retrieval_easy", "easy"),
    ("InfiniteBench", "math_find", "reasoning", ""),
    ("InfiniteBench", "longbook_sum_eng", "summarisation", ""),
    ("SCBench/Retr.KV", "Retr.KV", "retrieval_hard", "hard"),
    ("SCBench", "Retr.String", "retrieval_hard", "hard"),
    ("SCBench/Retr.Prefix-Suffix", "Retr.Prefix-Suffix", "retrieval_hard", "hard"),
    ("SCBench/Retr.MultiHop", "Retr.MultiHop", "retrieval_easy", "tracing"),
    ("SCBench/ICL.ManyShot", "ICL.ManyShot", "aggregate", ""),
    ("SCBench", "multi-turn avg", "aggregate", ""),
    ("AA-LCR", "AA-LCR", "retrieval_easy", "tracing"),
    ("NIAH", "single needle 33 positions", "retrieval_easy", "easy"),
    ("passkey", "passkey", "retrieval_easy", "easy"),
    ("LongBench", "passage_retrieval_en", "retrieval_easy", "easy"),
    ("LongBench", "PassageCount", "aggregate", ""),
    ("LongBench", "average-11", "aggregate", ""),
    ("LongBench", "RepoBench-P", "code", ""),
    ("LongBench", "GovReport", "summarisation", ""),
    ("LongBench", "SAMSum", "aggregate", ""),
    ("LongBench-E", "qasper_e 4-8k", "aggregate", ""),
    ("LooGLE", "shortdep_qa", "aggregate", ""),
    ("WikiText2", "ppl", "perplexity", ""),
    ("wikitext", "word_perplexity", "perplexity", ""),
    ("PG-19", "ppl", "perplexity", ""),
    ("GSM8K", "CoT", "reasoning", ""),
    ("gsm8k_cot", "gsm8k_cot", "reasoning", ""),
    ("MATH-500", "MATH-500", "reasoning", ""),
    ("aime25", "aime25", "reasoning", ""),
    ("GPQA-Diamond", "GPQA-Diamond", "reasoning", ""),
    ("HumanEval", "pass@10", "code", ""),
    ("mbpp", "mbpp", "code", ""),
    ("qmsum", "qmsum", "summarisation", ""),
    ("mmlu_stem", "mmlu_stem", "aggregate", ""),
    ("zero-shot avg-10", "zero-shot avg-10", "aggregate", ""),
    ("avg-5", "hellaswag,lambada,mmlu,piqa,winogrande", "aggregate", ""),
]


@pytest.mark.parametrize(("benchmark", "subtask", "task", "within"), NAMES)
def test_names_have_a_class_and_a_tier(benchmark: str, subtask: str, task: str, within: str) -> None:
    assert (task_class(benchmark, subtask), tier(benchmark, subtask)) == (task, within)
    assert task_class(benchmark.upper(), f" {subtask.upper()} ") == task
    if task.startswith("retrieval"):
        assert task_class(benchmark, subtask, "retrieval") == task
    else:
        with pytest.raises(InputError, match=f"known as {task}"):
            task_class(benchmark, subtask, "retrieval")


def test_what_a_file_states_is_taken() -> None:
    assert task_class("LongBench", "samsum", "summarisation") == "summarisation"
    for task in TASKS:
        assert task_class("our tickets", "routing", task) == task


def test_unknown_names_and_classes_are_refused_with_what_is_known() -> None:
    with pytest.raises(
        InputError, match=r'task "niah" of benchmark "RULLER" is unknown \(did you mean RULER\?\)'
    ) as error:
        task_class("RULLER", "niah")
    assert all(name in str(error.value) for name in (*TASKS, *known_benchmarks()))
    with pytest.raises(InputError, match="state retrieval_easy or retrieval_hard"):
        task_class("our tickets", "lookup", "retrieval")
    with pytest.raises(InputError, match=r'"retreival" is unknown \(did you mean retrieval_'):
        task_class("RULER", "vt", "retreival")
    assert tier("our tickets", "lookup") == ""


def test_every_rule_can_decide() -> None:
    """A rule that earlier ones always beat would be dead: each decides for one of the names here, or is listed."""
    decided = {next(rule for rule in load_rules() if rule.matches(*names[:2])) for names in NAMES}
    others = {
        ("InfiniteBench", "code_run"), ("InfiniteBench", "longbook_qa_eng"), ("InfiniteBench", "average"),
        ("SCBench", "Code.RepoQA"), ("SCBench", "En.Summary"), ("SCBench", "Math.Find"), ("LongBench", "few_shot"),
        ("LongBench-v2", "average"), ("LooGLE", "summarization"), ("bbh", "bbh"), ("SciCode", "SciCode"),
        ("COPA", "COPA"), ("LAMBADA", "LAMBADA"), ("race-high", "race-high"), ("IFBench", "IFBench"),
    }  # fmt: skip
    decided |= {next(rule for rule in load_rules() if rule.matches(*names)) for names in others}
    assert set(load_rules()) == decided


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "holds no"),
        ('[[rule]]\nname = "a"\nbenchmark = "("\ntask = "code"\n', "no regular expression"),
        ('[[rule]]\nname = "a"\nbenchmark = "a"\ntask = "coding"\n', 'task "coding" is unknown'),
        ('[[rule]]\nname = "a"\nbenchmark = "a"\n', "task"),
        ('[[rule]]\nname = "a"\nbenchmark = "a"\ntask = "code"\ntier = "odd"\n', "tier"),
        ('[[rule]]\nname = "a"\nbenchmark = "a"\ntask = "code"\nclass = "code"\n', "class"),
        ("[[rule", "not valid TOML"),
    ],
)
def test_faults_of_a_file_of_rules(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=fault) as error:
        load_rules(path)
    assert str(error.value).startswith("rules.toml")
