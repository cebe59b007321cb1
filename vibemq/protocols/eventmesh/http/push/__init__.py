"""Subscriptions by HTTP, and the pushes to their URLs.

hub            who is subscribed, and as whom
registry       what is kept of it, in a queue
groups         messages of one group on their way to its URLs
requests       a message as the form that is posted
answers        what a subscriber's answer means
inner_session  how all of it speaks with the engine
"""
