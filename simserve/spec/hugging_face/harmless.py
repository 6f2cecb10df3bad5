"""Keys that change nothing that is computed here, whatever their value, by why that is so."""

_LIBRARY = """_name_or_path architectures auto_map transformers_version torchscript return_dict use_cache model_type
    _attn_implementation attn_implementation _commit_hash use_bfloat16 output_attentions output_hidden_states
    is_decoder chunk_size_feed_forward gradient_checkpointing use_return_dict problem_type
    finetuning_task id2label label2id task_specific_params tie_encoder_decoder
    custom_pipelines unsloth_version unsloth_fixed _flash_attn_2_enabled
    _attn_implementation_autoset attn_implementation_internal use_flash_attn onnx_export _experts_implementation"""
"""What a library does with the file or the results."""

_TOKENS = """bos_token_id eos_token_id pad_token_id decoder_start_token_id sep_token_id unk_token_id cls_token_id
    mask_token_id forced_bos_token_id forced_eos_token_id suppress_tokens begin_suppress_tokens prefix bad_words_ids
    tokenizer_class vision_start_token_id vision_end_token_id vision_token_id image_token_id video_token_id
    image_token_index video_token_index audio_token_id audio_token_index boi_token_id eoi_token_id boa_token_id
    eoa_token_id boi_token_index eoi_token_index boa_token_index eoa_token_index image_start_token_id
    image_end_token_id eoa_token_index ignore_index media_placeholder_token_id no_token_id"""
"""Which number a token has."""

_GENERATION = """temperature top_p top_k typical_p repetition_penalty length_penalty no_repeat_ngram_size num_beams
    num_beam_groups diversity_penalty do_sample early_stopping max_length min_length max_new_tokens
    num_return_sequences output_scores return_dict_in_generate remove_invalid_values exponential_decay_length_penalty
    encoder_no_repeat_ngram_size"""
"""How answers are sampled where nobody says otherwise."""

_TRAINING = """initializer_range initializer_factor attention_dropout hidden_dropout hidden_dropout_prob
    attention_probs_dropout_prob embd_pdrop resid_pdrop attn_pdrop dropout classifier_dropout mlp_dropout
    router_aux_loss_coef aux_loss_alpha seq_aux output_router_logits router_jitter_noise input_jitter_noise
    rms_norm_eps layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_eps norm_epsilon pretraining_tp
    pretraining_sequence_length max_window_layers_training z_loss_coefficient router_z_loss_coef moe_z_loss_coef
    initializer_m ep_size pretraining_vocab_size"""
"""How weights were trained, or a small number inside a kernel."""

_POSITIONS = """rope_theta rope_interleave rope_local_base_freq rope_traditional partial_rotary_factor rotary_pct
    rotary_emb_base rotary_base rotary_dim rope_parameters_type swa_rope_theta mrope_section compress_rope_theta
    rope_ratio"""
"""How positions turn queries and keys, which takes the same time whatever they are."""

_SCALES = """logits_scaling logit_scale embedding_multiplier attention_multiplier residual_multiplier lm_head_multiplier
    query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping routed_scaling_factor norm_topk_prob
    scoring_func topk_method n_group topk_group attn_temperature_tuning attn_scale floor_scale swiglu_limit
    moe_router_activation_func topk_scaling_factor"""
"""Factors that values are multiplied by, and rules by which the router compares its scores."""

HARMLESS = frozenset(" ".join([_LIBRARY, _TOKENS, _GENERATION, _TRAINING, _POSITIONS, _SCALES]).split())
