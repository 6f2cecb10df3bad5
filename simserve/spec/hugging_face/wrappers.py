"""Multimodal models: where their decoder's keys are, and what towers they have.

Classes and their defaults: transformers 5.24; where a model is none of transformers, vLLM 0.33.
"""

from collections.abc import Callable

from simserve.spec.hugging_face.family import Tower, Wrapper
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.towers import (
    deepseek_vl,
    gemma,
    glm,
    intern_vit,
    llama4,
    llava,
    minimax,
    moonvit,
    muse,
    phi,
    qwen,
    step,
    whisper,
)

Count = Callable[[Keys, Keys, int], int | None]

_HARMLESS = (
    *("image_seq_length", "image_grid_pinpoints", "vision_feature_select_strategy", "projector_hidden_act"),
    *(
        "process_image_mode",
        "vision_aspect_ratio",
        "image_placeholder",
        "video_placeholder",
        "projection_layer_norm_eps",
    ),
    *("mm_tokens_per_image", "vision_soft_tokens_per_image", "audio_soft_tokens_per_image", "adapter_layer_norm_eps"),
    *("image_end_token_id", "video_start_token_id", "video_end_token_id", "audio_start_token_id", "audio_end_token_id"),
    *("image_newline_token_id", "im_start_token_id", "im_end_token_id", "user_token_id", "assistant_token_id"),
    *("system_token_id", "tts_bos_token_id", "tts_eos_token_id", "tts_pad_token_id", "enable_audio_output"),
    *(
        "position_id_per_seconds",
        "seconds_per_chunk",
        "use_unified_vision_chunk",
        "_pad_token_id",
        "is_encoder_decoder",
    ),
)
"""How pictures and sound are cut up and told from text, activations of projectors: how many tokens a picture makes is
the request's prompt to say.
"""

_LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}
_MISTRAL = {**_LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072}
_GEMMA3 = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
    "max_position_embeddings": 131072,
}


def _vision(parameters: Count | None, *path: str, why: str = "") -> Tower:
    return Tower("vision tower", path or ("vision_config",), parameters, why)


def _audio(parameters: Count | None, *path: str, optional: bool = False) -> Tower:
    return Tower("audio tower", path or ("audio_config",), parameters, optional=optional)


def _qwen(name: str, architecture: str, tower: Count, family: str) -> Wrapper:
    """A Qwen with pictures, whose files may have the decoder's keys at the top."""
    return Wrapper(
        name,
        (name,),
        (architecture,),
        (_vision(tower),),
        family=family,
        text_types=(f"{name}_text",),
        harmless=_HARMLESS,
    )


def _omni(
    name: str, architecture: str, towers: tuple[Count, Count], family: str, beside: tuple[Tower, ...]
) -> list[Wrapper]:
    """A Qwen with pictures and sound: whole, with a part that speaks, and the part that thinks alone."""
    vision, audio = towers
    thinker = "thinker_config"
    whole = Wrapper(
        name,
        (name,),
        (f"{architecture}ForConditionalGeneration", f"{architecture}Model"),
        (_vision(vision, thinker, "vision_config"), _audio(audio, thinker, "audio_config"), *beside),
        text=(thinker, "text_config"),
        family=family,
        text_types=(f"{name}_text",),
        class_ties=name == "qwen2_5_omni",
        harmless=_HARMLESS,
    )
    alone = whole._replace(
        name=f"{name}_thinker",
        model_types=(f"{name}_thinker",),
        architectures=(f"{architecture}ThinkerForConditionalGeneration",),
        towers=(_vision(vision), _audio(audio)),
        text=("text_config",),
    )
    return [whole, alone]


def _not_served(name: str, section: str) -> Tower:
    return Tower(name, (section,), why="vLLM serves the part that thinks alone", optional=True)


_TALKER = _not_served("talker", "talker_config")

WRAPPERS: tuple[Wrapper, ...] = (
    Wrapper(
        "llava",
        ("llava",),
        ("LlavaForConditionalGeneration",),
        (_vision(llava.llava),),
        family="llama",
        harmless=_HARMLESS,
        defaults={"llama": _LLAMA, "mistral": _MISTRAL},
    ),
    Wrapper(
        "llava_next",
        ("llava_next",),
        ("LlavaNextForConditionalGeneration",),
        (_vision(llava.llava_next),),
        family="llama",
        harmless=(*_HARMLESS, "use_image_newline_parameter"),
        defaults={"llama": _LLAMA, "mistral": _MISTRAL},
    ),
    Wrapper(
        "llava_onevision",
        ("llava_onevision",),
        ("LlavaOnevisionForConditionalGeneration",),
        (_vision(llava.llava_next),),
        family="qwen2",
        harmless=(*_HARMLESS, "use_image_newline_parameter"),
    ),
    Wrapper(
        "paligemma",
        ("paligemma",),
        ("PaliGemmaForConditionalGeneration",),
        (_vision(llava.paligemma),),
        family="gemma",
        harmless=_HARMLESS,
    ),
    Wrapper(
        "gemma3",
        ("gemma3",),
        ("Gemma3ForConditionalGeneration",),
        (_vision(llava.gemma3),),
        family="gemma3",
        text_types=("gemma3_text",),
        harmless=_HARMLESS,
        defaults={"gemma3": _GEMMA3, "gemma3_text": _GEMMA3},
    ),
    Wrapper(
        "gemma3n",
        ("gemma3n",),
        ("Gemma3nForConditionalGeneration",),
        (_vision(gemma.gemma3n_vision), _audio(gemma.gemma3n_audio)),
        family="gemma3n",
        text_types=("gemma3n_text",),
        harmless=_HARMLESS,
    ),
    Wrapper(
        "gemma4",
        ("gemma4",),
        ("Gemma4ForConditionalGeneration",),
        (
            Tower("vision tower", ("vision_config",), gemma.gemma4_vision, optional=True),
            _audio(gemma.gemma4_audio, optional=True),
        ),
        family="gemma4",
        text_types=("gemma4_text",),
        harmless=_HARMLESS,
    ),
    Wrapper(
        "mistral3",
        ("mistral3",),
        ("Mistral3ForConditionalGeneration",),
        (_vision(llava.mistral3),),
        family="mistral",
        class_ties=True,
        harmless=_HARMLESS,
    ),
    Wrapper(
        "voxtral",
        ("voxtral",),
        ("VoxtralForConditionalGeneration",),
        (_audio(whisper.voxtral),),
        family="llama",
        harmless=_HARMLESS,
    ),
    Wrapper(
        "cohere2_vision",
        ("cohere2_vision",),
        ("Cohere2VisionForConditionalGeneration",),
        (_vision(llava.cohere2_vision),),
        family="cohere2",
        harmless=_HARMLESS,
    ),
    Wrapper(
        "aya_vision",
        ("aya_vision",),
        ("AyaVisionForConditionalGeneration",),
        (_vision(llava.aya_vision),),
        family="cohere2",
        harmless=(*_HARMLESS, "vision_feature_layer"),
    ),
    Wrapper(
        "idefics3",
        ("idefics3", "smolvlm"),
        ("Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"),
        (_vision(llava.idefics),),
        family="llama",
        harmless=_HARMLESS,
    ),
    _qwen("qwen2_vl", "Qwen2VLForConditionalGeneration", qwen.qwen2_vision, "qwen2"),
    _qwen("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", qwen.qwen2_5_vision, "qwen2"),
    _qwen("qwen3_vl", "Qwen3VLForConditionalGeneration", qwen.qwen3_vision, "qwen3"),
    _qwen("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", qwen.qwen3_vision, "qwen3_moe"),
    _qwen("qwen3_5", "Qwen3_5ForConditionalGeneration", qwen.qwen3_5_vision, "qwen3_5"),
    _qwen("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", qwen.qwen3_5_vision, "qwen3_5_moe"),
    *_omni(
        "qwen2_5_omni",
        "Qwen2_5Omni",
        (qwen.qwen2_5_vision, whisper.qwen2_5_omni_audio),
        "qwen2",
        (_TALKER, _not_served("vocoder", "token2wav_config")),
    ),
    *_omni(
        "qwen3_omni_moe",
        "Qwen3OmniMoe",
        (qwen.qwen3_vision, whisper.qwen3_omni_audio),
        "qwen3_moe",
        (_TALKER, _not_served("vocoder", "code2wav_config")),
    ),
    Wrapper(
        "qwen2_audio",
        ("qwen2_audio",),
        ("Qwen2AudioForConditionalGeneration",),
        (_audio(whisper.qwen2_audio),),
        family="qwen2",
        harmless=_HARMLESS,
    ),
    Wrapper(
        "llama4",
        ("llama4",),
        ("Llama4ForConditionalGeneration",),
        (_vision(llama4.llama4_vision),),
        family="llama4",
        text_types=("llama4_text",),
        harmless=(*_HARMLESS, "image_processor_config"),
    ),
    Wrapper(
        "muse_glimmer",
        ("muse_glimmer",),
        ("MuseGlimmerForConditionalGeneration",),
        (_vision(muse.muse_glimmer_vision),),
        family="muse_glimmer",
        text_types=("muse_glimmer_text",),
        harmless=_HARMLESS,
    ),
    Wrapper(
        "kimi_vl",
        ("kimi_vl",),
        ("KimiVLForConditionalGeneration",),
        (_vision(moonvit.moonvit),),
        family="deepseek_v3",
        harmless=_HARMLESS,
    ),
    Wrapper(
        "kimi_k25",
        ("kimi_k25",),
        ("KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"),
        (_vision(moonvit.moonvit),),
        family="deepseek_v3",
        text_types=("kimi_k2",),
        class_ties=True,
        harmless=_HARMLESS,
    ),
    Wrapper(
        "kimi_k3",
        ("kimi_k3",),
        ("KimiK3ForConditionalGeneration",),
        (_vision(moonvit.moonvit),),
        family="kimi_linear",
        harmless=_HARMLESS,
    ),
    Wrapper(
        "minimax_m3_vl",
        ("minimax_m3_vl",),
        ("MiniMaxM3SparseForConditionalGeneration",),
        (_vision(minimax.minimax_m3_vision),),
        family="minimax_m3",
        harmless=(*_HARMLESS, "num_reward_heads", "vision_feature_layer"),
    ),
    Wrapper(
        "step3_vl",
        ("step3_vl",),
        ("Step3VLForConditionalGeneration",),
        (_vision(step.step3_vision),),
        family="step3_text",
        harmless=_HARMLESS,
    ),
    Wrapper(
        "step3p7",
        ("step3p7",),
        ("Step3p7ForConditionalGeneration", "Step3p7FlashForCausalLM"),
        (_vision(step.step3p7_vision),),
        family="step3p5",
        harmless=_HARMLESS,
    ),
    Wrapper(
        "internvl_chat",
        ("internvl_chat",),
        ("InternVLChatModel",),
        (_vision(intern_vit.intern_vit),),
        text=("llm_config",),
        harmless=(
            *_HARMLESS,
            *("dynamic_image_size", "use_thumbnail", "min_dynamic_patch", "max_dynamic_patch", "force_image_size"),
            *("ps_version", "template", "pad2square", "system_message"),
        ),
    ),
    Wrapper(
        "internvl",
        ("internvl",),
        ("InternVLForConditionalGeneration",),
        (_vision(intern_vit.internvl_vision),),
        family="qwen2",
        class_ties=True,
        harmless=(*_HARMLESS, "vision_feature_layer"),
    ),
    Wrapper(
        "glm4v",
        ("glm4v",),
        ("Glm4vForConditionalGeneration",),
        (_vision(glm.glm4v_vision),),
        family="glm4",
        text_types=("glm4v_text",),
        harmless=_HARMLESS,
    ),
    Wrapper(
        "glm4v_moe",
        ("glm4v_moe",),
        ("Glm4vMoeForConditionalGeneration",),
        (_vision(glm.glm4v_vision),),
        family="glm4_moe",
        text_types=("glm4v_moe_text",),
        harmless=_HARMLESS,
    ),
    Wrapper(
        "deepseek_vl_v2",
        ("deepseek_vl_v2",),
        ("DeepseekVLV2ForCausalLM",),
        (_vision(deepseek_vl.deepseek_vl2_vision),),
        text=("language_config",),
        family="deepseek_v2",
        harmless=(*_HARMLESS, "candidate_resolutions", "global_view_pos"),
    ),
    Wrapper(
        "phi3_v",
        ("phi3_v",),
        ("Phi3VForCausalLM",),
        (_vision(phi.phi3_vision, "img_processor"),),
        text=(),
        family="phi3",
        harmless=_HARMLESS,
    ),
    Wrapper(
        "phi4mm",
        ("phi4mm",),
        ("Phi4MMForCausalLM",),
        (
            _vision(phi.phi4_uncounted, "embd_layer"),
            _audio(None, "audio_processor"),
            Tower("LoRA for pictures", ("vision_lora",), optional=True),
            Tower("LoRA for speech", ("speech_lora",), optional=True),
        ),
        text=(),
        family="phi3",
        harmless=(*_HARMLESS, "img_processor"),
    ),
    Wrapper(
        "ovis",
        ("ovis", "ovis2_5", "ovis2_6"),
        ("Ovis", "Ovis2_5"),
        (
            Tower("vision tower", ("visual_tokenizer_config",), optional=True),
            Tower("vision tower", ("vit_config",), optional=True),
        ),
        text=("llm_config",),
        harmless=(*_HARMLESS, "conversation_formatter_class", "llm_attn_implementation", "multimodal_max_length"),
    ),
)
"""All of them. A further one is an entry here; its tower, if it has one of its own, a file in `towers`."""
