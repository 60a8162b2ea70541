"""The pronouns that stand for somebody or something named elsewhere, each with its forms."""

FORMS = {
    "he": ("he", "him", "his", "himself"),
    "she": ("she", "her", "hers", "herself"),
    "it": ("it", "its", "itself"),
    "they": ("they", "them", "their", "theirs", "themselves"),
}
PRONOUNS = {
    form: forms for forms in FORMS.values() for form in forms
}  # with the other forms of the same pronoun
