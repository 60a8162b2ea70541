# Where attn keeps things, by the variable that says so.
FOLDERS = {"XDG_CACHE_HOME": "cache", "XDG_DATA_HOME": "data", "XDG_CONFIG_HOME": "config"}
FOLDERS["GENSIM_DATA_DIR"] = "gensim-data"
