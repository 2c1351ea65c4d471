SPACES: dict = {}
