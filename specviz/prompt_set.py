from specviz.prompts import Prompt as Prompt, prompts as prompts
