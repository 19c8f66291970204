// The independent implementation that the golden files of this folder come from: llama.cpp, asked over standard input.
//
// Each question is an int32 kind, an int32 length and so many bytes (kind 0) or int32 tokens (kinds 1 and 2).
//   0  tokens of a text: answers with an int32 count and the tokens; special tokens in it are text
//   1  logits after each of the tokens: answers with float32 (length, vocabulary)
//   2  the likeliest tokens after these: followed by an int32 count, answers with so many tokens
// make_golden.py compiles and runs it.

#include <llama.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

static const int32_t CONTEXT = 1024;

static void fail(const char * what) {
    fprintf(stderr, "reference: %s\n", what);
    exit(1);
}

static int32_t read_number() {
    int32_t number;
    if (fread(&number, sizeof number, 1, stdin) != 1) exit(0);
    return number;
}

static void answer(const void * data, size_t size, size_t count) {
    if (fwrite(data, size, count, stdout) != count) fail("cannot write");
}

// Feed tokens at `position`; logits are kept of all of them.
static void feed(llama_context * context, std::vector<llama_token> tokens, int32_t position) {
    llama_batch batch = llama_batch_init((int32_t) tokens.size(), 0, 1);
    for (size_t i = 0; i < tokens.size(); i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = position + (int32_t) i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    batch.n_tokens = (int32_t) tokens.size();
    if (llama_decode(context, batch) != 0) fail("llama_decode failed");
    llama_batch_free(batch);
}

int main(int, char ** arguments) {
    llama_backend_init();
    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    llama_model * model = llama_model_load_from_file(arguments[1], llama_model_default_params());
    if (!model) fail("cannot load the model");
    const llama_vocab * vocabulary = llama_model_get_vocab(model);
    const int32_t size = llama_vocab_n_tokens(vocabulary);
    llama_context_params parameters = llama_context_default_params();
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = CONTEXT;
    parameters.n_threads = parameters.n_threads_batch = 1;
    parameters.type_k = parameters.type_v = GGML_TYPE_F32;
    parameters.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * context = llama_init_from_model(model, parameters);
    if (!context) fail("cannot make a context");
    for (;; fflush(stdout)) {
        const int32_t kind = read_number(), length = read_number();
        if (kind == 0) {
            std::vector<char> text(length + 1);
            if (fread(text.data(), 1, length, stdin) != (size_t) length) fail("the text ends early");
            std::vector<llama_token> tokens(length + 8);
            const int32_t count = llama_tokenize(vocabulary, text.data(), length, tokens.data(), length + 8, false, false);
            if (count < 0) fail("llama_tokenize failed");
            answer(&count, sizeof count, 1);
            answer(tokens.data(), sizeof(llama_token), count);
            continue;
        }
        std::vector<llama_token> tokens(length);
        if (fread(tokens.data(), sizeof(llama_token), length, stdin) != (size_t) length) fail("the tokens end early");
        llama_memory_clear(llama_get_memory(context), true);
        feed(context, tokens, 0);
        if (kind == 1) {
            for (int32_t i = 0; i < length; i++) answer(llama_get_logits_ith(context, i), sizeof(float), size);
            continue;
        }
        const float * logits = llama_get_logits_ith(context, length - 1);
        for (int32_t left = read_number(), position = length; left > 0; left--, position++) {
            const llama_token best = (llama_token) (std::max_element(logits, logits + size) - logits);
            answer(&best, sizeof best, 1);
            if (left > 1) {
                feed(context, {best}, position);
                logits = llama_get_logits_ith(context, 0);
            }
        }
    }
}
