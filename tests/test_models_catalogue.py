"""Every model of the catalogue against counts made by formulas of their own when the configs were gathered."""

from __future__ import annotations

import pytest

from kvwall.spaces.models import load_model, loadable_model_names, model_names

# Total and active parameters; KV bytes per token that grow, and of all layers, and fixed state bytes per
# sequence, at 16 bits per element of KV, 32 of state and 16 of its convolution.
COUNTED = {
    "01-ai/Yi-34B": (34_388_917_248, 34_388_917_248, 245_760, 245_760, 0),
    "CohereForAI/c4ai-command-r-plus": (103_809_822_720, 103_809_822_720, 262_144, 262_144, 0),
    "EleutherAI/gpt-j-6b": (6_050_882_784, 6_050_882_784, 458_752, 458_752, 0),
    "EleutherAI/gpt-neox-20b": (20_554_567_680, 20_554_567_680, 1_081_344, 1_081_344, 0),
    "MiniMaxAI/MiniMax-M1-80k": (456_089_655_296, 48_403_306_496, 40_960, 40_960, 293_601_280),
    "MiniMaxAI/MiniMax-M2.5": (228_689_764_864, 11_030_553_088, 253_952, 253_952, 0),
    "MiniMaxAI/MiniMax-M2.7": (228_689_764_864, 11_030_553_088, 253_952, 253_952, 0),
    "Qwen/Qwen2.5-0.5B": (494_032_768, 494_032_768, 12_288, 12_288, 0),
    "Qwen/Qwen2.5-1.5B": (1_543_714_304, 1_543_714_304, 28_672, 28_672, 0),
    "Qwen/Qwen2.5-14B": (14_770_033_664, 14_770_033_664, 196_608, 196_608, 0),
    "Qwen/Qwen2.5-32B-Instruct": (32_763_876_352, 32_763_876_352, 262_144, 262_144, 0),
    "Qwen/Qwen2.5-3B": (3_085_938_688, 3_085_938_688, 36_864, 36_864, 0),
    "Qwen/Qwen2.5-72B": (72_706_203_648, 72_706_203_648, 327_680, 327_680, 0),
    "Qwen/Qwen2.5-7B-Instruct": (7_615_616_512, 7_615_616_512, 57_344, 57_344, 0),
    "Qwen/Qwen3-0.6B": (596_049_920, 596_049_920, 114_688, 114_688, 0),
    "Qwen/Qwen3-1.7B": (1_720_574_976, 1_720_574_976, 114_688, 114_688, 0),
    "Qwen/Qwen3-14B": (14_768_307_200, 14_768_307_200, 163_840, 163_840, 0),
    "Qwen/Qwen3-235B-A22B-FP8": (235_093_634_560, 22_190_763_520, 192_512, 192_512, 0),
    "Qwen/Qwen3-235B-A22B": (235_093_634_560, 22_190_763_520, 192_512, 192_512, 0),
    "Qwen/Qwen3-30B-A3B": (30_532_122_624, 3_353_032_704, 98_304, 98_304, 0),
    "Qwen/Qwen3-32B-FP8": (32_762_123_264, 32_762_123_264, 262_144, 262_144, 0),
    "Qwen/Qwen3-32B": (32_762_123_264, 32_762_123_264, 262_144, 262_144, 0),
    "Qwen/Qwen3-4B": (4_022_458_880, 4_022_458_880, 147_456, 147_456, 0),
    "Qwen/Qwen3-8B": (8_190_735_360, 8_190_735_360, 147_456, 147_456, 0),
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": (480_154_875_392, 35_474_765_312, 253_952, 253_952, 0),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": (79_674_391_296, 3_874_929_408, 24_576, 24_576, 77_266_944),
    "Qwen/Qwen3.5-27B": (26_895_998_464, 26_895_998_464, 65_536, 65_536, 153_944_064),
    "Qwen/Qwen3.5-35B-A3B": (34_660_610_688, 3_454_988_928, 20_480, 20_480, 64_389_120),
    "Qwen/Qwen3.5-397B-A17B": (396_346_350_336, 17_349_040_896, 30_720, 30_720, 192_061_440),
    "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": (107_769_861_120, 17_172_894_720, 49_152, 196_608, 0),
    "ai21labs/AI21-Jamba-1.5-Large": (398_555_145_696, 94_149_338_592, 36_864, 36_864, 72_253_440),
    "ai21labs/AI21-Jamba-1.5-Mini": (51_570_323_328, 12_110_311_296, 16_384, 16_384, 16_056_320),
    "baidu/ERNIE-4.5-21B-A3B-PT": (21_825_437_888, 3_352_150_208, 57_344, 57_344, 0),
    "bigscience/bloom": (176_247_271_424, 176_247_271_424, 4_014_080, 4_014_080, 0),
    "databricks/dbrx-instruct": (131_596_523_520, 36_469_708_800, 163_840, 163_840, 0),
    "deepseek-ai/DeepSeek-R1": (671_026_419_200, 37_552_297_472, 70_272, 70_272, 0),
    "deepseek-ai/DeepSeek-V2-Lite": (15_706_484_224, 2_661_150_208, 31_104, 31_104, 0),
    "deepseek-ai/DeepSeek-V2": (235_741_434_880, 21_375_800_320, 69_120, 69_120, 0),
    "deepseek-ai/DeepSeek-V3.2": (671_877_944_064, 38_403_822_336, 85_888, 85_888, 0),
    "deepseek-ai/DeepSeek-V3": (671_026_419_200, 37_552_297_472, 70_272, 70_272, 0),
    "deepseek-ai/DeepSeek-V4-Pro": (1_572_997_179_491, 49_779_058_787, 9_848, 72_312, 0),
    "facebook/opt-13b": (12_853_473_280, 12_853_473_280, 819_200, 819_200, 0),
    "facebook/opt-66b": (65_719_701_504, 65_719_701_504, 2_359_296, 2_359_296, 0),
    "google/gemma-2-27b": (27_227_128_320, 27_227_128_320, 188_416, 376_832, 0),
    "google/gemma-2-2b": (2_614_341_888, 2_614_341_888, 53_248, 106_496, 0),
    "google/gemma-2-9b": (9_241_705_984, 9_241_705_984, 172_032, 344_064, 0),
    "google/gemma-3-12b-it": (11_766_034_176, 11_766_034_176, 65_536, 393_216, 0),
    "google/gemma-3-27b-it": (27_009_346_304, 27_009_346_304, 81_920, 507_904, 0),
    "google/gemma-3-4b-it": (3_880_263_168, 3_880_263_168, 20_480, 139_264, 0),
    "google/gemma-4-26B-A4B": (25_233_141_790, 3_822_530_590, 20_480, 225_280, 0),
    "google/gemma-4-31B-it": (30_697_345_340, 30_697_345_340, 81_920, 901_120, 0),
    "ibm-granite/granite-4.0-h-small": (32_207_337_984, 8_803_121_664, 16_384, 16_384, 152_819_712),
    "meta-llama/Llama-2-13b-hf": (13_015_864_320, 13_015_864_320, 819_200, 819_200, 0),
    "meta-llama/Llama-2-70b-hf": (68_976_648_192, 68_976_648_192, 327_680, 327_680, 0),
    "meta-llama/Llama-2-7b-hf": (6_738_415_616, 6_738_415_616, 524_288, 524_288, 0),
    "meta-llama/Llama-3.2-1B": (1_235_814_400, 1_235_814_400, 32_768, 32_768, 0),
    "meta-llama/Llama-3.2-3B": (3_212_749_824, 3_212_749_824, 114_688, 114_688, 0),
    "meta-llama/Llama-3.3-70B-Instruct": (70_553_706_496, 70_553_706_496, 327_680, 327_680, 0),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (400_711_848_960, 17_184_691_200, 49_152, 196_608, 0),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (107_769_861_120, 17_172_894_720, 49_152, 196_608, 0),
    "meta-llama/Meta-Llama-3-70B": (70_553_706_496, 70_553_706_496, 327_680, 327_680, 0),
    "meta-llama/Meta-Llama-3-8B": (8_030_261_248, 8_030_261_248, 131_072, 131_072, 0),
    "meta-llama/Meta-Llama-3.1-405B": (405_853_388_800, 405_853_388_800, 516_096, 516_096, 0),
    "meta-llama/Meta-Llama-3.1-70B": (70_553_706_496, 70_553_706_496, 327_680, 327_680, 0),
    "meta-llama/Meta-Llama-3.1-8B": (8_030_261_248, 8_030_261_248, 131_072, 131_072, 0),
    "microsoft/Phi-3-mini-4k-instruct": (3_821_079_552, 3_821_079_552, 393_216, 393_216, 0),
    "microsoft/Phi-3.5-mini-instruct": (3_821_079_552, 3_821_079_552, 393_216, 393_216, 0),
    "microsoft/phi-4": (14_659_507_200, 14_659_507_200, 204_800, 204_800, 0),
    "mistralai/Devstral-Small-2-24B-Instruct-2512": (23_572_403_200, 23_572_403_200, 163_840, 163_840, 0),
    "mistralai/Mamba-Codestral-7B-v0.1": (7_285_403_648, 7_285_403_648, 0, 0, 272_367_616),
    "mistralai/Mistral-7B-v0.3": (7_248_023_552, 7_248_023_552, 131_072, 131_072, 0),
    "mistralai/Mistral-Large-Instruct-2407": (122_610_069_504, 122_610_069_504, 360_448, 360_448, 0),
    "mistralai/Mistral-Nemo-Instruct-2407": (12_247_782_400, 12_247_782_400, 163_840, 163_840, 0),
    "mistralai/Mixtral-8x22B-v0.1": (140_620_634_112, 39_152_031_744, 229_376, 229_376, 0),
    "mistralai/Mixtral-8x7B-v0.1": (46_702_792_704, 12_879_925_248, 131_072, 131_072, 0),
    "moonshotai/Kimi-K2-Instruct": (1_026_408_232_448, 32_861_500_928, 70_272, 70_272, 0),
    "moonshotai/Kimi-K2.5": (1_026_408_232_448, 32_861_500_928, 70_272, 70_272, 0),
    "mosaicml/mpt-7b-instruct": (6_649_286_656, 6_649_286_656, 524_288, 524_288, 0),
    "nvidia/Llama-3.1-70B-Instruct-FP8": (70_553_706_496, 70_553_706_496, 327_680, 327_680, 0),
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": (49_867_145_216, 49_867_145_216, 200_704, 200_704, 0),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31_577_940_288, 3_580_076_352, 6_144, 6_144, 49_082_368),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (120_668_707_840, 12_770_237_440, 8_192, 8_192, 170_229_760),
    "nvidia/Nemotron-H-56B-Base-8K": (56_324_350_464, 56_324_350_464, 40_960, 40_960, 912_605_184),
    "openai/gpt-oss-120b": (116_829_156_672, 5_711_982_912, 36_864, 73_728, 0),
    "openai/gpt-oss-20b": (20_914_757_184, 4_187_440_704, 24_576, 49_152, 0),
    "tiiuae/falcon-180B": (178_557_088_768, 178_557_088_768, 163_840, 163_840, 0),
    "tiiuae/falcon-7b": (6_921_720_704, 6_921_720_704, 8_192, 8_192, 0),
    "zai-org/GLM-4.5-Air": (106_852_245_504, 13_424_123_904, 188_416, 188_416, 0),
    "EleutherAI/pythia-2.8b": (2_775_208_960, 2_775_208_960, 327_680, 327_680, 0),
    "Qwen/Qwen1.5-MoE-A2.7B": (14_315_784_192, 2_689_173_504, 196_608, 196_608, 0),
    "Qwen/Qwen3.5-122B-A10B": (122_111_526_912, 9_771_288_576, 24_576, 24_576, 153_649_152),
    "Qwen/Qwen3.5-4B": (4_205_751_296, 4_205_751_296, 32_768, 32_768, 51_511_296),
    "Qwen/Qwen3.5-9B": (8_953_803_264, 8_953_803_264, 32_768, 32_768, 51_511_296),
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": (1_100_048_384, 1_100_048_384, 22_528, 22_528, 0),
    "google/gemma-4-12b-it": (11_907_350_320, 11_907_350_320, 16_384, 344_064, 0),
    "google/gemma-7b": (8_537_680_896, 8_537_680_896, 458_752, 458_752, 0),
    "ibm-granite/granite-3.1-8b-instruct": (8_170_848_256, 8_170_848_256, 163_840, 163_840, 0),
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (49_122_681_728, 3_484_459_904, 8_064, 8_064, 43_417_600),
    "moonshotai/Moonlight-16B-A3B-Instruct": (15_960_110_208, 2_914_776_192, 31_104, 31_104, 0),
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": (8_888_227_328, 8_888_227_328, 16_384, 16_384, 143_548_416),
    "zai-org/GLM-4.7-Flash": (29_943_393_920, 3_896_766_080, 54_144, 54_144, 0),
    "zai-org/GLM-4.5": (352_797_791_232, 33_632_228_352, 376_832, 376_832, 0),
    "BAAI/Aquila-7B": (7_295_537_152, 7_295_537_152, 524_288, 524_288, 0),
    "Deci/DeciLM-7B": (7_043_551_232, 7_043_551_232, 34_304, 34_304, 0),
    "Qwen/Qwen1.5-7B": (7_721_324_544, 7_721_324_544, 524_288, 524_288, 0),
    "bigscience/bloom-7b1": (7_069_016_064, 7_069_016_064, 491_520, 491_520, 0),
    "codellama/CodeLlama-34b-hf": (33_743_970_304, 33_743_970_304, 196_608, 196_608, 0),
    "facebook/opt-6.7b": (6_658_473_984, 6_658_473_984, 524_288, 524_288, 0),
    "internlm/internlm-chat-20b": (20_088_714_240, 20_088_714_240, 1_228_800, 1_228_800, 0),
    "microsoft/phi-2": (2_779_683_840, 2_779_683_840, 327_680, 327_680, 0),
    "zai-org/GLM-5": (743_911_218_432, 41_784_728_832, 109_824, 109_824, 0),
}

# Counted here with what the table leaves out.
MORE = {
    "Qwen/Qwen3-4B": 36 * 2 * 128,  # norms on Q and K
    "zai-org/GLM-4.5-Air": 45 * 128,  # a routing bias per expert
    "zai-org/GLM-4.5": 89 * 160 + 92 * 2 * 128,  # both
}


@pytest.mark.parametrize("name", COUNTED)
def test_catalogue_counts(name: str) -> None:
    model = load_model(name)
    total, active, growing, all_layers, state = COUNTED[name]
    more = MORE.get(name, 0)
    assert (model.parameters_total, model.parameters_active) == (total + more, active + more)
    assert more <= 1e-3 * total
    assert model.kv_bytes_per_token_growing == growing
    assert model.kv_bytes_per_token_all_layers == all_layers
    assert model.state_bytes_per_sequence == state
    assert model.name == name
    assert model.source


def test_no_model_of_the_catalogue_is_refused() -> None:
    assert set(loadable_model_names()) == set(model_names()) == {*COUNTED, "paper/llama-3-70b"}


@pytest.mark.parametrize("name", COUNTED)
def test_classes_and_stores_are_consistent(name: str) -> None:
    model = load_model(name)
    assert all(group.layers > 0 for group in model.groups)
    assert sum(group.layers * group.readers for group in model.groups) >= sum(group.layers for group in model.groups)
    assert 0 < model.reduces_per_layer <= 2
    for group in model.groups:
        assert (group.score_dim > 0) == (group.kind != "recurrent")
        assert group.evictable == (group.kind in ("full", "latent", "sparse"))
        assert (group.state_bytes > 0) == (group.kind == "recurrent")
        assert group.query_heads % group.kv_heads == 0
