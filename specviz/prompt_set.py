from specviz.prompts import Prompt as Prompt
from specviz.prompts import prompts as prompts
