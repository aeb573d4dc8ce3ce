"""What tables 9.1, 9.2 and G.1 print: averages over the tasks of LongBench, in points of 100."""

LLAMA, NEMO, PHI = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "mistralai/Mistral-Nemo-Instruct-2407",
    "microsoft/Phi-3.5-mini-instruct",
)
SHORT = {LLAMA: "LLaMA 3.1", NEMO: "Mistral Nemo", PHI: "Phi 3.5"}
FILTER_LAYERS = {LLAMA: 13, NEMO: 19, PHI: 19}
KEEPS = (1024, 2048, 4096)

# without a chat template, 14 tasks; MInference has no smaller memory, and LLMLingua cuts the text to 1024 tokens
TABLE_9_1: dict[str, dict[str, dict[int, float]]] = {
    LLAMA: {
        "full": {0: 36.72}, "h2o": {4096: 33.63}, "minference": {0: 35.92}, "llmlingua": {1024: 18.55},
        "snapkv": {1024: 35.25, 2048: 35.80, 4096: 36.44}, "gemfilter": {1024: 34.50, 2048: 35.87, 4096: 36.09},
    },
    NEMO: {
        "full": {0: 46.36}, "h2o": {4096: 43.69}, "llmlingua": {1024: 23.42},
        "snapkv": {1024: 44.71, 2048: 45.42, 4096: 46.04}, "gemfilter": {1024: 45.14, 2048: 47.11, 4096: 46.79},
    },
    PHI: {
        "full": {0: 34.62}, "h2o": {4096: 30.31}, "llmlingua": {1024: 16.07},
        "snapkv": {1024: 33.68, 2048: 34.20, 4096: 34.53}, "gemfilter": {1024: 32.74, 2048: 31.69, 4096: 33.35},
    },
}
# LLaMA 3.1, k = 1024, by filter layer
TABLE_9_2 = {1: 23.50, 7: 27.47, 12: 28.03, 13: 34.50, 14: 34.30, 19: 34.12, 25: 33.94, 31: 30.04}
# LLaMA 3.1 with its chat template, six tasks of questions
TABLE_G_1 = {"full": 41.46, "minference": 42.95, "snapkv": 44.10, "gemfilter": 41.00}
QUESTIONS = ("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique")
